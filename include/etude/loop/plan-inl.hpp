#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>

#include "etude/error.hpp"
#include "etude/linkage.hpp"
#include "etude/loop/plan.hpp"
#include "etude/training_arguments.hpp"

namespace etude {

ETUDE_INLINE TrainPlan plan_training(const TrainingArguments& args,
                                     std::optional<std::int64_t> batches_per_epoch) {
  const auto group = args.gradient_accumulation_steps;
  if (!batches_per_epoch) {
    if (args.max_steps <= 0)
      throw ArgumentError(fmt::format(
          "max_steps is {}: must be positive, since train_dataset has no length to count epochs by",
          args.max_steps));
    return {args.max_steps, std::numeric_limits<std::int64_t>::max(), args.max_steps, args.max_steps * group};
  }
  TrainPlan plan;
  plan.batches_per_epoch = *batches_per_epoch;
  plan.updates_per_epoch = std::max<std::int64_t>((*batches_per_epoch + group - 1) / group, 1);
  if (args.max_steps > 0) {
    plan.max_steps = args.max_steps;
    plan.num_train_epochs = (args.max_steps + plan.updates_per_epoch - 1) / plan.updates_per_epoch;
  } else {
    const double steps = std::ceil(args.num_train_epochs * static_cast<double>(plan.updates_per_epoch));
    if (steps > 1e15)
      throw ArgumentError(fmt::format("num_train_epochs is {}: that is {} steps, and must be at most 1e15",
                                      args.num_train_epochs, steps));
    plan.max_steps = static_cast<std::int64_t>(steps);
    plan.num_train_epochs = static_cast<std::int64_t>(std::ceil(args.num_train_epochs));
  }
  return plan;
}

ETUDE_INLINE TrainPlan continued(TrainPlan plan, const TrainingArguments& args, std::int64_t global_step,
                                 std::int64_t epoch, std::int64_t batches_left) {
  const auto group = args.gradient_accumulation_steps;
  const auto done = (epoch + 1) * plan.updates_per_epoch - (batches_left + group - 1) / group;
  if (args.max_steps > 0) {
    const auto last = done + std::max<std::int64_t>(args.max_steps - global_step, 0);
    plan.num_train_epochs = (last + plan.updates_per_epoch - 1) / plan.updates_per_epoch;
  } else {
    plan.max_steps = global_step + std::max<std::int64_t>(plan.max_steps - done, 0);
  }
  return plan;
}

}  // namespace etude
