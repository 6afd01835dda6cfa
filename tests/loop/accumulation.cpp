#include "etude/loop/accumulation.hpp"

#include <doctest/doctest.h>

#include <cstdint>

#include "common/fault_of.hpp"
#include "etude/base/error.hpp"
#include "etude/training_arguments.hpp"

namespace loop_accumulation_test {

TEST_CASE("an update has gradient_accumulation_steps micro-batches unless the number varies") {
  const etude::TrainingArguments args{.gradient_accumulation_steps = 3};
  etude::Accumulation accumulation(args);
  CHECK_FALSE(accumulation.varies());
  CHECK_FALSE(accumulation.by_epoch());
  CHECK(accumulation.in(5) == 3);
  CHECK(accumulation.steps() == 1);
  accumulation.begin_epoch(5);
  CHECK(accumulation.steps() == 3);
}

TEST_CASE("a number that varies is that of the epoch, and at least 1") {
  const etude::TrainingArguments args{.gradient_accumulation_steps = 3};
  etude::Accumulation accumulation(args);
  accumulation.vary([](std::int64_t epoch) { return 2 - epoch; });
  CHECK(accumulation.varies());
  CHECK(accumulation.in(0) == 2);
  accumulation.begin_epoch(1);
  CHECK(accumulation.steps() == 1);
  const auto fault = [&](auto act) { return toy::fault_of<etude::ArgumentError>(act); };
  CHECK(fault([&] { accumulation.begin_epoch(2); }) ==
        "gradient_accumulation_steps of epoch 2 is 0: must be at least 1");
  CHECK(accumulation.steps() == 1);
  CHECK(fault([&] { accumulation.by_epoch()(3); }) ==
        "gradient_accumulation_steps of epoch 3 is -1: must be at least 1");
}

}  // namespace loop_accumulation_test
