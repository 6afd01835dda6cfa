#include "etude/parallel/gloo.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <torch/types.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "common/fault_of.hpp"
#include "common/ranks.hpp"
#include "etude/base/error.hpp"

namespace parallel_gloo_test {

using toy::checks;
using toy::Faults;

TEST_CASE("every rank has the sum over all, of each dtype, also in a part of a buffer") {
  for (const std::int64_t world : {1, 2, 4}) {
    CAPTURE(world);
    const auto expected = static_cast<double>(world * (world + 1) / 2);
    const auto faults = toy::as_ranks(world, [&](etude::Communicator& ranks) {
      for (const auto dtype : {torch::kFloat, torch::kDouble, torch::kLong}) {
        const auto buffer = torch::full({40}, ranks.rank() + 1, dtype);
        ranks.sum(buffer.narrow(0, 16, 8));
        const std::lock_guard lock(checks);
        CHECK(buffer[16].item<double>() == expected);
        CHECK(buffer[23].item<double>() == expected);
        CHECK(buffer[15].item<double>() == static_cast<double>(ranks.rank() + 1));
        CHECK(buffer[24].item<double>() == static_cast<double>(ranks.rank() + 1));
      }
    });
    CHECK(faults == Faults(static_cast<std::size_t>(world)));
  }
}

TEST_CASE("messages may be under way at the same time, and arrive in their own tensors") {
  const auto faults = toy::as_ranks(2, [&](etude::Communicator& ranks) {
    std::vector<torch::Tensor> tensors;
    std::vector<etude::PendingMessage> messages;
    for (int i = 0; i < 10; ++i) {
      tensors.push_back(torch::full({1000}, i + 100 * static_cast<int>(ranks.rank())));
      messages.push_back(ranks.begin_sum(tensors.back()));
    }
    for (const auto& message : messages) message();
    const std::lock_guard lock(checks);
    for (int i = 0; i < 10; ++i) CHECK(tensors[static_cast<std::size_t>(i)][999].item<int>() == 2 * i + 100);
  });
  CHECK(faults == Faults(2));
}

TEST_CASE("a broadcast has the tensor of its rank, and a gathering those of all in order") {
  const auto faults = toy::as_ranks(3, [&](etude::Communicator& ranks) {
    const auto own = torch::full({2, 2}, ranks.rank());
    const auto all = ranks.gather(own);
    const auto texts = ranks.gather_bytes(std::string(static_cast<std::size_t>(ranks.rank()), 'x'));
    ranks.broadcast(own, 2);
    ranks.barrier();
    const std::lock_guard lock(checks);
    CHECK(all.sizes() == torch::IntArrayRef{3, 2, 2});
    CHECK(all.select(1, 0).select(1, 0).equal(torch::tensor({0, 1, 2}, torch::kLong)));
    CHECK(own[1][1].item<int>() == 2);
    CHECK(texts == std::vector<std::string>{"", "x", "xx"});
  });
  CHECK(faults == Faults(3));
}

TEST_CASE("each rank has the sum of its own part, of each dtype, and a gathering gives all of them to each") {
  for (const std::int64_t world : {2, 3}) {
    CAPTURE(world);
    const auto faults = toy::as_ranks(world, [&](etude::Communicator& ranks) {
      for (const auto dtype : {torch::kFloat, torch::kLong, torch::kBFloat16}) {
        const auto place = torch::arange(2 * world, dtype);  // small integers are exact in bfloat16
        const auto tensor = place * (ranks.rank() + 1);
        const auto pending = ranks.begin_sum_parts(tensor);
        pending();
        const auto expected = place * (world * (world + 1) / 2);
        const auto own = tensor.narrow(0, 2 * ranks.rank(), 2).clone();
        tensor.zero_().narrow(0, 2 * ranks.rank(), 2).copy_(own);
        ranks.gather_parts(tensor);
        const std::lock_guard lock(checks);
        CHECK(own.equal(expected.narrow(0, 2 * ranks.rank(), 2)));
        CHECK(tensor.equal(expected));
      }
      ranks.gather_parts(torch::empty({0}));
      ranks.begin_sum_parts(torch::empty({0}))();
    });
    CHECK(faults == Faults(static_cast<std::size_t>(world)));
  }
}

TEST_CASE("a tensor that can't be cut into a part for each rank is refused") {
  const auto faults =
      toy::as_ranks(2, [&](etude::Communicator& ranks) { ranks.gather_parts(torch::ones({7})); });
  CHECK(faults[0] == "rank 0 of 2: the tensor has 7 elements: must be a multiple of 2");
}

TEST_CASE("a rank that gives up ends what the others wait for, and what they begin later, with its reason") {
  for (const std::int64_t who : {0, 2}) {
    const auto begin = std::chrono::steady_clock::now();
    std::vector<std::string> later(3);
    const auto faults = toy::as_ranks(3, [&](etude::Communicator& ranks) {
      const auto tensor = torch::ones({3});
      ranks.sum(tensor);
      if (ranks.rank() == who) return ranks.give_up("the loss is nan");
      const auto first = ranks.begin_sum(tensor);
      const auto second = ranks.begin_sum(torch::ones({3}));
      try {
        first();
      } catch (const etude::CommunicationError&) {
        later[static_cast<std::size_t>(ranks.rank())] =
            toy::fault_of<etude::CommunicationError>([&] { ranks.barrier(); });
        throw;
      }
    });
    CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(10));
    for (const std::int64_t rank : {0, 1, 2}) {
      if (rank == who) continue;
      const auto expected =
          fmt::format("rank {} of 3: rank {} ended the training: the loss is nan", rank, who);
      CHECK(faults[static_cast<std::size_t>(rank)] == expected);
      CHECK(later[static_cast<std::size_t>(rank)] == expected);
    }
  }
}

TEST_CASE("alone there is nothing to send, and nothing to join") {
  const auto alone = etude::join_with_gloo({});
  const auto tensor = torch::ones({3});
  alone->sum(tensor);
  alone->broadcast(tensor);
  alone->barrier();
  alone->begin_sum_parts(tensor)();
  alone->gather_parts(tensor);
  alone->give_up("no one hears this");
  CHECK(tensor.equal(torch::ones({3})));
  CHECK(alone->gather(tensor).sizes() == torch::IntArrayRef{1, 3});
  CHECK(alone->gather_bytes("bytes") == std::vector<std::string>{"bytes"});
}

TEST_CASE("a rank that doesn't come is named by the others") {
  const auto faults = toy::as_ranks(
      3,
      [&](etude::Communicator& ranks) {
        const auto tensor = torch::ones({3});
        ranks.sum(tensor);
        if (ranks.rank() != 1) ranks.sum(tensor);
      },
      std::chrono::seconds(6));  // includes the time to connect, on a busy machine
  CHECK(toy::contains(faults[0], "rank 0 of 3: a sum failed, and rank 1 is missing"));
  CHECK(toy::contains(faults[2], "rank 2 of 3: a sum failed, and rank 1 is missing"));
  CHECK(faults[1].empty());
}

TEST_CASE("ranks that send different messages are told both, though Gloo itself only waits") {
  using Act = std::function<void(etude::Communicator&)>;
  const Act sum = [](etude::Communicator& ranks) { ranks.sum(torch::ones({3})); };
  const std::vector<std::pair<Act, std::string>> others{
      {[](etude::Communicator& ranks) { ranks.broadcast(torch::ones({3})); },
       "12 bytes of Float in a broadcast"},
      {[](etude::Communicator& ranks) { ranks.gather(torch::ones({4})); }, "16 bytes of Float in a gather"},
      {[](etude::Communicator& ranks) { ranks.barrier(); }, "a barrier"}};
  for (const bool at_timeout : {false, true})
    for (const auto& [other, text] : others) {
      CAPTURE(text);
      CAPTURE(at_timeout);
      const auto begin = std::chrono::steady_clock::now();
      const auto faults = toy::as_ranks(
          2,
          [&](etude::Communicator& ranks) {
            sum(ranks);
            ranks.rank() == 0 ? sum(ranks) : other(ranks);
            sum(ranks);
          },
          at_timeout ? std::chrono::milliseconds(700) : std::chrono::minutes(5));
      CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(30));
      const auto why = fmt::format(
          "rank 0 sends 12 bytes of Float in a sum, but rank 1 {}: all ranks must send the same", text);
      CHECK(toy::contains(faults[0] + faults[1], why));
      CHECK(!faults[0].empty());
      CHECK(!faults[1].empty());
      if (!at_timeout) CHECK(toy::contains(faults[0], why));
    }
}

/// The second of two ranks, which meet at this port.
etude::Launch second_at(std::int64_t port) {
  return {.rank = 1,
          .world_size = 2,
          .local_rank = 1,
          .local_world_size = 2,
          .launcher = "torchrun",
          .master_addr = "127.0.0.1",
          .master_port = port};
}

/// A port that accepts connections but never answers.
class SilentPort {
 public:
  SilentPort() {
    socket_ = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ::bind(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address);
    ::listen(socket_, 16);
    socklen_t size = sizeof address;
    ::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size);
    number = ntohs(address.sin_port);
  }
  SilentPort(const SilentPort&) = delete;
  SilentPort& operator=(const SilentPort&) = delete;
  ~SilentPort() { ::close(socket_); }

  std::int64_t number = 0;

 private:
  int socket_;
};

TEST_CASE("a port that accepts and says nothing ends at the timeout, whoever serves the store") {
  const SilentPort port;
  for (const bool agent_serves_store : {false, true}) {
    auto launch = second_at(port.number);
    launch.agent_serves_store = agent_serves_store;
    const auto begin = std::chrono::steady_clock::now();
    const auto fault = toy::fault_of<etude::CommunicationError>(
        [&] { etude::join_with_gloo(launch, {.timeout = std::chrono::milliseconds(600)}); });
    CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(10));
    CHECK(toy::contains(fault, "rank 1 of 2: "));
    CHECK(toy::contains(fault, fmt::format("127.0.0.1:{}", port.number)));
  }
}

TEST_CASE("an address that can't be reached is named") {
  const auto fault = toy::fault_of<etude::CommunicationError>([] {
    etude::join_with_gloo(second_at(toy::free_port()), {.timeout = std::chrono::milliseconds(300)});
  });
  CHECK(toy::contains(fault, "rank 1 of 2: the processes can't meet at 127.0.0.1:"));
}

}  // namespace parallel_gloo_test
