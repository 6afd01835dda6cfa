#include "etude/loop/plan.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <optional>

#include "common/fault_of.hpp"
#include "etude/base/error.hpp"

namespace loop_plan_test {

using etude::ArgumentError;
using etude::TrainingArguments;
using toy::contains;

constexpr std::int64_t most_batches = std::int64_t{1} << 62;

std::string fault_of_plan(const TrainingArguments& args, std::optional<std::int64_t> batches,
                          const etude::AccumulationOf& accumulation = {}) {
  return toy::fault_of<ArgumentError>([&] { etude::plan_training(args, batches, accumulation); });
}

TEST_CASE("an endless number of epochs is refused before any of them begins") {
  TrainingArguments args{.num_train_epochs = 1e18};
  CHECK(fault_of_plan(args, 10) ==
        "num_train_epochs is 1e+18: that is 1e+19 steps, and must be at most 1e15");
  int asked = 0;
  const auto two = [&](std::int64_t) { return ++asked, std::int64_t{2}; };
  CHECK(contains(fault_of_plan(args, 10, two),
                 "num_train_epochs is 1e+18 and max_steps is -1: must be at most 1000000 epochs"));
  CHECK(asked <= 1);
  args = {.num_train_epochs = 3, .max_steps = 1'000'000'000'000};
  CHECK(contains(fault_of_plan(args, 10, two), "max_steps is 1000000000000: must be at most"));
  CHECK(asked <= 1'000'002);
  args.max_steps = 4'000'000;
  CHECK(etude::plan_training(args, 10, two).num_train_epochs == 800'000);
}

TEST_CASE("a fraction of epochs or steps is as many updates as a person computes") {
  std::int64_t wrong = 0;
  TrainingArguments args;
  const auto one = [](std::int64_t) { return std::int64_t{1}; };
  for (std::int64_t number = 1; number < 100; number += 3)
    for (std::int64_t batches = 1; batches <= 400; ++batches) {
      args.num_train_epochs = static_cast<double>(number) / 10;
      const auto expected = (number * batches + 9) / 10;
      wrong += etude::plan_training(args, batches).max_steps != expected;
      if (batches % 10 == 0) wrong += etude::plan_training(args, batches, one).max_steps != expected;
      args.warmup_steps = static_cast<double>(number) / 100;
      const auto hundredths = (number * batches + 99) / 100;
      wrong += etude::get_warmup_steps(args, batches) != hundredths;
      wrong += etude::Interval(static_cast<double>(number) / 100).steps(batches) != hundredths;
    }
  CHECK(wrong == 0);
  args.num_train_epochs = 2.7;  // 2.7 - 2 as a double is more than 0.7
  CHECK(etude::plan_training(args, 10, one).max_steps == 27);
}

TEST_CASE("the largest number of batches gives a correct plan, or an error") {
  TrainingArguments args{.gradient_accumulation_steps = 1'000'000, .max_steps = 1'000'000'000'000};
  auto plan = etude::plan_training(args, most_batches);
  CHECK(plan.updates_per_epoch == 4'611'686'018'428);  // of 4611686018427387904 batches, rounded up
  CHECK(plan.num_train_epochs == 1);
  args.max_steps = -1;
  args.num_train_epochs = 2;
  CHECK(etude::plan_training(args, most_batches).max_steps == 9'223'372'036'856);
  args.gradient_accumulation_steps = 1;
  CHECK(contains(fault_of_plan(args, most_batches), "must be at most 1e15"));
  plan = etude::plan_training(
      {.gradient_accumulation_steps = std::numeric_limits<std::int64_t>::max(), .num_train_epochs = 3},
      most_batches);
  CHECK(plan.updates_per_epoch == 1);
  CHECK(plan.max_steps == 3);
}

TEST_CASE("a stream's number of batches follows from max_steps, and too many steps are refused") {
  TrainingArguments args{.gradient_accumulation_steps = 1'000'000, .max_steps = 1'000'000'000'000};
  const auto plan = etude::plan_training(args, std::nullopt);
  CHECK(plan.batches_per_epoch == 1'000'000'000'000'000'000);
  CHECK(plan.num_train_epochs == 1'000'000'000'000'000);
  args.max_steps = most_batches;
  CHECK(contains(fault_of_plan(args, std::nullopt),
                 "max_steps is 4611686018427387904: must be at most 2^62 / 1000000"));
}

TEST_CASE("a plan can't continue from an epoch that no training reaches") {
  const TrainingArguments args{.num_train_epochs = 2};
  const auto plan = etude::plan_training(args, 1000);
  const auto fault = [&](const etude::AccumulationOf& accumulation) {
    return toy::fault_of<ArgumentError>(
        [&] { etude::continued(plan, args, 10, 1'000'000'000'000'000, 5, accumulation); });
  };
  CHECK(contains(fault({}), "must be at most 1e15"));
  CHECK(contains(fault([](std::int64_t) { return std::int64_t{1}; }), "at most 1000000 epochs"));
}

}  // namespace loop_plan_test
