#include "etude/parallel/shared_memory.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>
#include <torch/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/fault_of.hpp"
#include "common/ranks.hpp"
#include "etude/base/error.hpp"
#include "etude/io/launch.hpp"
#include "etude/parallel/gloo.hpp"
#include "etude/parallel/join_processes.hpp"

namespace parallel_shared_memory_test {

using toy::checks;
using toy::Faults;

/// Runs `act` as ranks in threads that share memory. A warning fails the test.
template <class Act>
Faults as_ranks(std::int64_t world, const etude::SharedMemoryOptions& options, const Act& act) {
  return toy::as_ranks(world, act, std::chrono::seconds(30), [&](toy::Met met) {
    auto own = options;
    own.warn = [](const std::string& why) { throw etude::Error(why); };
    return etude::over_shared_memory(std::move(met), own);
  });
}

/// Joins the other processes with this process's rank.
std::unique_ptr<etude::Communicator> join(std::chrono::milliseconds timeout = std::chrono::seconds(30)) {
  return etude::join_processes(etude::find_launch(), {.timeout = timeout, .warn = [](const std::string& why) {
                                                        throw etude::Error(why);
                                                      }});
}

bool shares_memory() {
  std::ifstream maps("/proc/self/maps");
  const std::string text((std::istreambuf_iterator<char>(maps)), {});
  return toy::contains(text, "/memfd:etude-");
}

/// The tensor of a rank: small whole numbers, whose sums are exact in each dtype.
torch::Tensor numbers(std::int64_t size, std::int64_t rank, torch::Dtype dtype) {
  return torch::arange(size, torch::kLong).mul(rank + 3).remainder(7).to(dtype);
}

torch::Tensor sum_of_numbers(std::int64_t size, std::int64_t world, torch::Dtype dtype) {
  auto sum = torch::zeros({size}, torch::kLong);
  for (std::int64_t rank = 0; rank < world; ++rank) sum += numbers(size, rank, torch::kLong);
  return sum.to(dtype);
}

TEST_CASE("sums of any size and dtype are those of all ranks, with many messages under way") {
  const std::vector dtypes{torch::kFloat, torch::kDouble, torch::kHalf, torch::kBFloat16,
                           torch::kLong,  torch::kInt,    torch::kByte, torch::kChar};
  for (const std::int64_t world : {2, 3, 4}) {
    // Few and small slots: messages have many pieces, and the ring wraps around.
    for (const std::int64_t slots : {1, 3}) {
      CAPTURE(world);
      CAPTURE(slots);
      const auto faults =
          as_ranks(world, {.slot_bytes = 1024, .slots = slots}, [&](etude::Communicator& ranks) {
            std::mt19937 random(17);  // the same on all ranks
            for (std::size_t round = 0; round < 4; ++round) {
              std::vector<torch::Tensor> tensors, expected;
              std::vector<etude::PendingMessage> messages;
              for (int i = 0; i < 24; ++i) {
                const auto dtype = dtypes[random() % dtypes.size()];
                const auto size = static_cast<std::int64_t>(random() % (random() % 3 == 0 ? 20000 : 200));
                tensors.push_back(numbers(size, ranks.rank(), dtype));
                expected.push_back(sum_of_numbers(size, world, dtype));
                messages.push_back(ranks.begin_sum(tensors.back()));
              }
              if (round % 2 == 1) messages.back()();  // the earlier ones arrive with the last
              for (std::size_t i = 0; i + round % 2 < messages.size(); ++i) messages[i]();
              const std::lock_guard lock(checks);
              for (std::size_t i = 0; i < tensors.size(); ++i) CHECK(tensors[i].equal(expected[i]));
            }
          });
      CHECK(faults == Faults(static_cast<std::size_t>(world)));
    }
  }
}

TEST_CASE("each rank has the sum of its own part, and a gathering gives all parts to each") {
  for (const std::int64_t world : {2, 3, 4}) {
    CAPTURE(world);
    const auto faults = as_ranks(world, {.slot_bytes = 1024, .slots = 2}, [&](etude::Communicator& ranks) {
      for (const std::int64_t part : {0, 1, 63, 5000}) {
        const auto size = part * world;
        const auto tensor = numbers(size, ranks.rank(), torch::kFloat);
        ranks.begin_sum_parts(tensor)();
        const auto own = tensor.narrow(0, part * ranks.rank(), part).clone();
        tensor.zero_().narrow(0, part * ranks.rank(), part).copy_(own);
        ranks.gather_parts(tensor);
        const auto expected = sum_of_numbers(size, world, torch::kFloat);
        const std::lock_guard lock(checks);
        CHECK(own.equal(expected.narrow(0, part * ranks.rank(), part)));
        CHECK(tensor.equal(expected));
      }
      CHECK_THROWS_AS(ranks.gather_parts(torch::ones({world + 1})), etude::ArgumentError);
    });
    CHECK(faults == Faults(static_cast<std::size_t>(world)));
  }
}

TEST_CASE("a sum in floating point has the same bits on all ranks: it adds in the order of the ranks") {
  for (const std::int64_t size : {3, 100000}) {
    std::vector<torch::Tensor> results(4);
    const auto of = [&](std::int64_t rank) {
      return torch::arange(size, torch::kFloat)
          .add(static_cast<double>(rank))
          .mul(1e4)
          .sin()
          .mul(rank == 1 ? 1e4 : 1.0);
    };
    const auto faults = as_ranks(4, {.slot_bytes = 4096}, [&](etude::Communicator& ranks) {
      const auto tensor = of(ranks.rank());
      ranks.sum(tensor);
      results[static_cast<std::size_t>(ranks.rank())] = tensor;
    });
    CHECK(faults == Faults(4));
    for (const auto& result : results) CHECK(result.equal(of(0) + of(1) + of(2) + of(3)));
  }
}

TEST_CASE("bfloat16 is summed as float32") {
  const auto faults = as_ranks(4, {}, [&](etude::Communicator& ranks) {
    // In bfloat16, 256 + 1 is 256 again.
    const auto tensor = torch::full({3}, ranks.rank() == 0 ? 256 : 1, torch::kBFloat16);
    ranks.sum(tensor);
    const std::lock_guard lock(checks);
    CHECK(tensor[2].item<float>() == 260.F);  // 259, rounded
  });
  CHECK(faults == Faults(4));
}

TEST_CASE("broadcasts, gatherings and barriers go with sums through the same memory") {
  const auto faults = as_ranks(3, {.slot_bytes = 256, .slots = 2}, [&](etude::Communicator& ranks) {
    const auto large = numbers(1000, 0, torch::kFloat);
    const auto pending = ranks.begin_sum(large);
    const auto own = torch::full({50, 2}, ranks.rank());
    const auto all = ranks.gather(own);
    const auto texts = ranks.gather_bytes(std::string(static_cast<std::size_t>(ranks.rank()) * 300, 'x'));
    ranks.broadcast(own, 2);
    ranks.barrier();
    pending();
    const std::lock_guard lock(checks);
    CHECK(all.sizes() == torch::IntArrayRef{3, 50, 2});
    CHECK(all.select(1, 49).select(1, 1).equal(torch::tensor({0, 1, 2}, torch::kLong)));
    CHECK(own.eq(2).all().item<bool>());
    CHECK(texts == std::vector<std::string>{"", std::string(300, 'x'), std::string(600, 'x')});
    CHECK(large.equal(numbers(1000, 0, torch::kFloat) * 3));
  });
  CHECK(faults == Faults(3));
}

TEST_CASE("a barrier holds until all have come") {
  std::atomic<int> arrived = 0;
  const auto faults = as_ranks(3, {}, [&](etude::Communicator& ranks) {
    for (int i = 1; i < 50; ++i) {
      ++arrived;
      ranks.barrier();
      const bool all_came = arrived >= 3 * i;
      ranks.barrier();
      if (!all_came) throw etude::Error("a barrier opened early");
    }
  });
  CHECK(faults == Faults(3));
}

TEST_CASE("ranks that send different messages are told both") {
  const auto faults = as_ranks(
      2, {}, [](etude::Communicator& ranks) { ranks.sum(torch::ones({ranks.rank() == 0 ? 3 : 5})); });
  // Either message may come first.
  CHECK(toy::contains(faults[0], "12 bytes of Float in a sum"));
  CHECK(toy::contains(faults[0], "20 bytes of Float in a sum"));
  CHECK(toy::contains(faults[1], "rank 1 of 2: rank "));
}

TEST_CASE("a rank that gives up ends what the others wait for, and what they begin later, with its reason") {
  std::vector<std::string> later(3);
  const auto faults = as_ranks(3, {}, [&](etude::Communicator& ranks) {
    ranks.barrier();
    if (ranks.rank() == 1) return ranks.give_up("the loss is nan");
    try {
      ranks.barrier();
    } catch (const etude::CommunicationError&) {
      later[static_cast<std::size_t>(ranks.rank())] =
          toy::fault_of<etude::CommunicationError>([&] { ranks.sum(torch::ones({3})); });
      throw;
    }
  });
  CHECK(faults[0] == "rank 0 of 3: rank 1 ended the training: the loss is nan");
  CHECK(faults[2] == "rank 2 of 3: rank 1 ended the training: the loss is nan");
  CHECK(later[0] == faults[0]);
  CHECK(later[2] == faults[2]);
}

TEST_CASE("what a rank sent before it gave up still arrives") {
  std::atomic<bool> has_given_up{false};
  torch::Tensor received;
  const auto faults = as_ranks(2, {}, [&](etude::Communicator& ranks) {
    const auto tensor = numbers(5000, ranks.rank(), torch::kFloat);
    if (ranks.rank() == 0) {
      ranks.broadcast(tensor);
      ranks.give_up("the loss is nan");
      has_given_up = true;
      CHECK_THROWS_AS(ranks.broadcast(tensor), etude::CommunicationError);
      return;
    }
    for (int i = 0; i < 20'000 && !has_given_up; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ranks.broadcast(tensor);
    received = tensor.clone();
    ranks.broadcast(tensor);
  });
  REQUIRE(received.defined());
  CHECK(received.equal(numbers(5000, 0, torch::kFloat)));
  CHECK(faults == Faults{"", "rank 1 of 2: rank 0 ended the training: the loss is nan"});
}

TEST_CASE("a rank that leaves is named, but not for a message that it took part in") {
  const auto faults = as_ranks(3, {}, [](etude::Communicator& ranks) {
    const auto large = torch::ones({1 << 20});
    ranks.sum(large);
    if (ranks.rank() == 2) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    ranks.barrier();
  });
  CHECK(faults ==
        Faults{"rank 0 of 3: rank 2 has left the training", "rank 1 of 3: rank 2 has left the training", ""});
}

TEST_CASE("a rank that doesn't come is named at the timeout") {
  std::atomic<int> given_up{0};
  const auto faults =
      as_ranks(3, {.timeout = std::chrono::milliseconds(200)}, [&](etude::Communicator& ranks) {
        ranks.barrier();
        if (ranks.rank() == 1) {
          for (int i = 0; i < 20'000 && given_up < 2; ++i)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          // Would succeed for this rank alone, since the others have sent their parts.
          ranks.sum(torch::ones({5}));
        } else {
          try {
            ranks.sum(torch::ones({5}));
          } catch (...) {
            ++given_up;
            throw;
          }
        }
      });
  for (std::size_t rank = 0; rank < 3; ++rank)
    CHECK(faults[rank] == fmt::format("rank {} of 3: rank 1 sent nothing for 0.2 s (the timeout)", rank));
}

TEST_CASE("processes that share memory sum, and leave nothing in /dev/shm") {
  if (toy::is_rank()) {
    const auto ranks = join();
    CHECK(shares_memory());
    for (const std::int64_t size : {1, 5000, 3000000}) {
      const auto tensor = numbers(size, ranks->rank(), torch::kFloat);
      ranks->sum(tensor);
      CHECK(tensor.equal(sum_of_numbers(size, ranks->world_size(), torch::kFloat)));
    }
    return;
  }
  const auto names = [] {
    std::set<std::string> result;
    if (std::filesystem::exists("/dev/shm"))
      for (const auto& entry : std::filesystem::directory_iterator("/dev/shm"))
        if (entry.path().string().find("etude") != std::string::npos) result.insert(entry.path());
    return result;
  };
  const auto before = names();
  for (const std::int64_t world : {2, 4})
    CHECK(toy::in_processes(world, "processes that share memory sum, and leave nothing in /dev/shm") ==
          Faults(static_cast<std::size_t>(world), "exit 0"));
  CHECK(names() == before);
}

TEST_CASE("a rank that is killed is named by the others at once") {
  if (toy::is_rank()) {
    const auto ranks = join();
    const auto tensor = torch::ones({300000});
    ranks->sum(tensor);
    if (ranks->rank() == 1) ::raise(SIGKILL);
    const auto begin = std::chrono::steady_clock::now();
    const auto fault = toy::fault_of<etude::CommunicationError>([&] { ranks->sum(tensor); });
    const auto taken = std::chrono::steady_clock::now() - begin;
    CHECK(toy::contains(fault, fmt::format("rank {} of 3: rank 1 is gone: its process ", ranks->rank())));
    CHECK(taken < std::chrono::seconds(2));
    const auto again = std::chrono::steady_clock::now();
    CHECK(toy::fault_of<etude::CommunicationError>([&] { ranks->barrier(); }) == fault);
    CHECK(std::chrono::steady_clock::now() - again < std::chrono::seconds(1));
    return;
  }
  CHECK(toy::in_processes(3, "a rank that is killed is named by the others at once") ==
        Faults{"exit 0", "signal 9", "exit 0"});
}

TEST_CASE("a rank that is stopped is named at the timeout") {
  if (toy::is_rank()) {
    const auto ranks = join(std::chrono::seconds(5));
    ranks->barrier();
    if (ranks->rank() == 2) ::raise(SIGSTOP);
    const auto fault = toy::fault_of<etude::CommunicationError>([&] { ranks->sum(torch::ones({300000})); });
    CHECK(
        fault ==
        fmt::format("rank {} of 3: rank 2 sent nothing for 5 s (the timeout); rank 2 is stopped by a signal",
                    ranks->rank()));
    return;
  }
  toy::Processes ranks(3, "a rank that is stopped is named at the timeout");
  CHECK(ranks.end(0) == "exit 0");
  CHECK(ranks.end(1) == "exit 0");
}

TEST_CASE("ETUDE_SHARED_MEMORY=0 leaves the processes to Gloo") {
  if (toy::is_rank()) {
    const auto ranks = join();
    CHECK(!shares_memory());
    const auto tensor = torch::ones({3});
    ranks->sum(tensor);
    CHECK(tensor[0].item<int>() == 2);
    return;
  }
  CHECK(toy::in_processes(2, "ETUDE_SHARED_MEMORY=0 leaves the processes to Gloo",
                          {"ETUDE_SHARED_MEMORY=0"}) == Faults(2, "exit 0"));
}

TEST_CASE("memory that the machine doesn't have is refused with a reason, and the processes go on without") {
  std::vector<std::string> warnings(2);
  const auto faults = toy::as_ranks(
      2,
      [](etude::Communicator& ranks) {
        const auto tensor = torch::ones({3});
        ranks.sum(tensor);
        if (tensor[2].item<int>() != 2) throw etude::Error("a wrong sum");
      },
      std::chrono::seconds(30),
      [&](toy::Met met) {
        auto& warning = warnings[static_cast<std::size_t>(met->rank())];
        return etude::over_shared_memory(std::move(met), {.slots = std::int64_t{1} << 40,
                                                          .warn = [&](const auto& why) { warning = why; }});
      });
  CHECK(faults == Faults(2));
  CHECK(toy::contains(warnings[0], "the processes don't share memory: "));
  CHECK(toy::contains(warnings[0], "more than a quarter of the machine's memory"));
  CHECK(warnings[1] == warnings[0]);
}

TEST_CASE("slots that can't hold a part for each rank are refused") {
  const auto faults = as_ranks(2, {.slot_bytes = 100}, [](etude::Communicator&) {});
  CHECK(faults[0] == "SharedMemoryOptions::slot_bytes is 100: must be a multiple of 64 that is at least 128");
}

}  // namespace parallel_shared_memory_test
