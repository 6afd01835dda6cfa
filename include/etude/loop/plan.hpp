#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "etude/checkpoint/training_progress.hpp"
#include "etude/training_arguments.hpp"

namespace etude::inline v0 {

/// The number of steps of a training, counted as in Hugging Face's Trainer: a partial last group of an epoch
/// is an update like any other, and `max_steps` overrides `num_train_epochs`.
struct TrainPlan {
  std::int64_t max_steps = 0;          ///< update steps
  std::int64_t num_train_epochs = 0;   ///< epochs begun; 1e15 if the data has no length
  std::int64_t updates_per_epoch = 0;  ///< in the first epoch, if epochs differ
  std::int64_t batches_per_epoch =
      0;  ///< micro-batches; if the data has no length, the number for `max_steps` updates (0: endless)
};

/// The number of micro-batches per update in an epoch; empty if the arguments fix it for all epochs.
using AccumulationOf = std::function<std::int64_t(std::int64_t epoch)>;

/// `batches_per_epoch` is unset if the data has no length. Throws `ArgumentError` if nothing bounds the
/// training.
TrainPlan plan_training(const TrainingArguments& args, std::optional<std::int64_t> batches_per_epoch,
                        const AccumulationOf& accumulation = {});

/// The plan of a training whose batches a program gives one by one, until it has enough or `max_steps` are
/// done: one epoch. Throws `ArgumentError` if `max_steps` isn't given, but an interval or the schedule
/// (unless it `has_own_schedule`) depends on it.
TrainPlan plan_stepped_training(const TrainingArguments& args, bool has_own_schedule);

/// The plan of a training that continues with batches or groups of another size: `global_step` updates of the
/// old size are done, and `batches_left` of the new size complete `epoch`. The total number of epochs stays
/// the same, or the number of steps if `max_steps` was given.
TrainPlan continued(TrainPlan plan, const TrainingArguments& args, std::int64_t global_step,
                    std::int64_t epoch, std::int64_t batches_left, const AccumulationOf& accumulation = {});

/// The plan of a phase, counted from the beginning of the training.
TrainPlan after(const DonePhases& done, TrainPlan plan);

}  // namespace etude::inline v0
