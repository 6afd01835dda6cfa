#include "etude/data/worker_pool.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>

#include "common/child.hpp"
#include "common/gate.hpp"
#include "common/printed.hpp"
#include "etude/base/error.hpp"
#include "etude/base/interrupt.hpp"
#include "etude/data/data_loader.hpp"

namespace data_worker_pool_test {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// Waits until the condition holds; false if it never does.
template <class Condition>
bool becomes(Condition condition) {
  const auto end = Clock::now() + 20s;
  while (!condition() && Clock::now() < end) std::this_thread::sleep_for(5ms);
  return condition();
}

// Shared by a test and the copies of its dataset.
struct Shared {
  toy::Gate gate;
  std::atomic<int> stuck = 0;
};

// A dataset whose `get` is stuck from example 4 on, until the gate opens.
struct Stuck {
  std::shared_ptr<Shared> shared = std::make_shared<Shared>();
  std::shared_ptr<int> token = std::make_shared<int>();

  int size() const { return 100; }
  torch::Tensor get(int i) {
    if (i >= 4) {
      ++shared->stuck;
      shared->gate.wait();
    }
    return torch::full({}, i);
  }
};

TEST_CASE("an epoch ends although a worker is stuck, and the worker owns everything it uses until it ends") {
  const auto shared = std::make_shared<Shared>();
  std::weak_ptr<int> of_dataset, of_collator;
  const auto begin = Clock::now();
  {
    Stuck dataset{.shared = shared};
    const auto token = std::make_shared<int>();
    of_dataset = dataset.token;
    of_collator = token;
    etude::DataLoader loader(
        std::move(dataset),
        {.batch_size = 2, .num_workers = 3, .collator = [token](std::vector<etude::Example> examples) {
           if (!token) throw etude::Error("no token");
           return etude::default_data_collator(examples);
         }});
    auto stream = loader.begin_epoch(0);
    CHECK(stream.next()->size == 2);
    REQUIRE(becomes([&] { return shared->stuck > 0; }));
    // The next epoch has its own threads.
    stream = loader.begin_epoch(1);
    CHECK(stream.next()->size == 2);
  }
  CHECK(Clock::now() - begin < 15s);
  CHECK_FALSE(of_dataset.expired());
  CHECK_FALSE(of_collator.expired());
  shared->gate.open();
  CHECK(becomes([&] { return of_dataset.expired() && of_collator.expired(); }));
}

// A stream of the numbers from 0 to 5, which is stuck before 2 until the gate opens. Two threads must not use
// it at once.
struct StuckStream {
  std::shared_ptr<Shared> shared = std::make_shared<Shared>();
  std::shared_ptr<std::atomic<int>> inside = std::make_shared<std::atomic<int>>(0);
  std::shared_ptr<std::atomic<bool>> overlaps = std::make_shared<std::atomic<bool>>(false);
  int position = 0;

  struct Visit {
    explicit Visit(StuckStream& of) : inside(of.inside) {
      if (++*inside > 1) *of.overlaps = true;
    }
    ~Visit() { --*inside; }
    std::shared_ptr<std::atomic<int>> inside;
  };
  void reset() {
    const Visit visit(*this);
    position = 0;
  }
  std::optional<torch::Tensor> next() {
    const Visit visit(*this);
    if (position == 2) {
      ++shared->stuck;
      shared->gate.wait();
    }
    if (position == 6) return std::nullopt;
    return torch::full({}, position++);
  }
};

TEST_CASE("a stream in which a worker is stuck isn't read by anyone else until the worker returns") {
  StuckStream dataset;
  etude::DataLoader loader(dataset, {.batch_size = 1, .num_workers = 1, .prefetch_factor = 8});
  {
    auto left = loader.begin_epoch(0);
    CHECK(left.next()->inputs[0].item<int>() == 0);
    REQUIRE(becomes([&] { return dataset.shared->stuck > 0; }));
  }
  std::thread opening([&] {
    std::this_thread::sleep_for(200ms);
    dataset.shared->gate.open();
  });
  auto stream = loader.begin_epoch(1);
  opening.join();
  for (int i = 0; i < 6; ++i) CHECK(stream.next()->inputs[0].item<int>() == i);
  CHECK_FALSE(stream.next());
  CHECK_FALSE(*dataset.overlaps);
}

TEST_CASE("a signal ends the wait for a stream in which a worker is stuck") {
  StuckStream dataset;
  etude::DataLoader loader(dataset, {.batch_size = 1, .num_workers = 1, .prefetch_factor = 8});
  {
    auto left = loader.begin_epoch(0);
    left.next();
    REQUIRE(becomes([&] { return dataset.shared->stuck > 0; }));
  }
  const auto before = ::signal(SIGTERM, [](int) {});
  {
    etude::SignalGuard guard(true);
    const etude::InterruptionScope waiting(true);
    ::raise(SIGTERM);
    CHECK_THROWS_AS(loader.begin_epoch(1), etude::Interrupted);
  }
  ::signal(SIGTERM, before);
  dataset.shared->gate.open();
  CHECK(becomes([&] { return *dataset.inside == 0; }));
}

TEST_CASE("a child created by fork() has no workers, gets an error, and may exit in any way") {
  const auto shared = std::make_shared<Shared>();
  etude::DataLoader loader(Stuck{.shared = shared},
                           {.batch_size = 1, .num_workers = 2, .prefetch_factor = 8});
  auto stream = std::make_unique<etude::BatchStream>(loader.begin_epoch(0));
  stream->next();
  REQUIRE(becomes([&] { return shared->stuck == 2; }));
  CHECK(toy::end_of_child([]() -> int { std::exit(3); }) == "exit 3");
  CHECK(toy::end_of_child([&] {
          try {
            stream->next();
          } catch (const etude::Error& error) {
            return std::string(error.what()).find("forked") == std::string::npos ? 1 : 4;
          }
          return 2;
        }) == "exit 4");
  CHECK(toy::end_of_child([&] {
          stream.reset();
          if (!toy::child_can_start_threads) return 5;
          return loader.begin_epoch(1).next()->size == 1 ? 5 : 1;  // with the child's own threads
        }) == "exit 5");
  shared->gate.open();
  CHECK(stream->next()->size == 1);
}

TEST_CASE("a child created by fork() in get() may exit, and doesn't return from it") {
  struct Forking {
    bool exits;
    int size() const { return 1; }
    torch::Tensor get(int) {
      const auto child = ::fork();
      if (child == 0 && exits) std::exit(3);
      return torch::full({}, child != 0 && toy::end_of(child) == (exits ? "exit 3" : "exit 1") ? 5 : 6);
    }
  };
  const auto said = toy::printed(
      [] {
        for (const bool exits : {false, true})
          CHECK(etude::DataLoader(Forking{exits}, {.num_workers = 1})
                    .begin_epoch(0)
                    .next()
                    ->inputs[0]
                    .item<int>() == 5);
      },
      STDERR_FILENO);
  CHECK(said == "a child made by fork() in a dataset or a collator must not return from it\n");
}

TEST_CASE("exit() in a worker ends the process with its status, whatever else is running, and says so") {
  struct Exiting {
    std::shared_ptr<Shared> shared;
    int size() const { return 2; }
    torch::Tensor get(int i) {
      if (i == 0) {
        ++shared->stuck;
        shared->gate.wait();
      }
      becomes([&] { return shared->stuck > 0; });
      std::exit(5);
    }
  };
  std::string end;
  const auto said = toy::printed(
      [&] {
        end = toy::end_of_child([] {
          etude::DataLoader loader(Exiting{std::make_shared<Shared>()}, {.batch_size = 1, .num_workers = 2});
          auto stream = loader.begin_epoch(0);
          stream.next();
          return 1;
        });
      },
      STDERR_FILENO);
  CHECK(end == "exit 5");
  CHECK(said.find("exit() was called in one of Etude's threads") != said.npos);
}

// A static object that `exit` destroys; in a child, this is slow.
struct Static {
  std::atomic<bool> is_slow = false, gone = false;
  ~Static() {
    gone = true;
    if (is_slow) std::this_thread::sleep_for(1s);
  }
} used;

TEST_CASE("exit() waits a moment for running workers, and they start nothing new") {
  struct Slow {
    std::chrono::milliseconds time;
    std::shared_ptr<std::atomic<int>> begun;

    int size() const { return 100; }
    torch::Tensor get(int) {
      if (used.gone) ::_exit(9);
      ++*begun;
      std::this_thread::sleep_for(time);
      if (used.gone && time < 100ms) ::_exit(8);
      return torch::ones({});
    }
  };
  for (const auto time : {20ms, 1000ms}) {
    CAPTURE(time.count());
    CHECK(toy::end_of_child([&]() -> int {
            const auto begun = std::make_shared<std::atomic<int>>(0);
            used.is_slow = true;
            auto& loader = *new etude::DataLoader(Slow{time, begun},
                                                  {.batch_size = 1, .num_workers = 2, .prefetch_factor = 50});
            auto& stream = *new etude::BatchStream(loader.begin_epoch(0));
            stream.next();
            becomes([&] { return *begun > 2; });
            std::exit(6);
          }) == "exit 6");
  }
}

}  // namespace data_worker_pool_test
