// At its end, a long training holds no more memory, descriptors and threads than after a fifth of its steps.
// `./dev test --all` makes 1,000,000 steps.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <string>
#include <vector>

#include "common/folder.hpp"
#include "common/full_run.hpp"
#include "etude/libtorch/memory_usage.hpp"

namespace loop_soak_test {

std::int64_t entries(const char* folder) {
  return std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator());
}

struct Usage {
  std::int64_t memory = 0, descriptors = 0, threads = 0;
};

/// Records the process's resources after each twentieth of the training.
struct Watch {
  std::vector<Usage> usages = {};
  void on(const etude::StepEnd& e) {
    if (e.state.global_step % (e.state.max_steps / 20) == 0)
      usages.push_back({etude::resident_memory(), entries("/proc/self/fd"), entries("/proc/self/task")});
  }
};

TEST_CASE("memory, descriptors and threads don't grow with the steps") {
  const char* given = std::getenv("ETUDE_SOAK_STEPS");
  const std::int64_t steps = given == nullptr ? 4000 : std::atoll(given);
  const toy::Folder folder;
  std::mt19937 engine;
  auto options = toy::full_options(folder, engine);
  auto& args = options.args;
  args.max_steps = steps;
  args.logging_steps = steps / 200;
  args.eval_steps = steps / 200;
  args.save_steps = steps / 100;
  args.save_total_limit = 2;
  args.save_async = true;
  args.dataloader_num_workers = 1;
  args.gradient_accumulation_steps = 2;
  etude::Trainer<Watch, toy::Diary, toy::Quiet> trainer(std::move(options), Watch{},
                                                        toy::Diary{.engine = &engine});
  REQUIRE(trainer.train().global_step == steps);

  const auto& usages = trainer.callback<Watch>().usages;
  REQUIRE(usages.size() == 20);
  // Uses the least of several records, because a checkpoint in writing and a starting worker hold some
  // resources for a moment.
  const auto least = [&](auto begin, auto end, std::int64_t Usage::*field) {
    return (*std::min_element(begin, end,
                              [&](const Usage& a, const Usage& b) { return a.*field < b.*field; })).*
           field;
  };
  const auto early = usages.begin() + 4, late = usages.end() - 4;
  CHECK(least(late, usages.end(), &Usage::descriptors) <= least(early, early + 4, &Usage::descriptors));
  CHECK(least(late, usages.end(), &Usage::threads) <= least(early, early + 4, &Usage::threads));
  // Leaves room for 200 logs, 200 evaluations and their texts, and for the allocator's fragmentation.
  CHECK(least(late, usages.end(), &Usage::memory) - least(early, early + 4, &Usage::memory) < 4 << 20);
  MESSAGE(steps << " steps: " << usages[4].memory / 1024 << " KiB after a fifth, "
                << usages.back().memory / 1024 << " KiB at the end");
}

}  // namespace loop_soak_test
