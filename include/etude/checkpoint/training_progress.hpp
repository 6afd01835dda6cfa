#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "etude/checkpoint/training_phase.hpp"
#include "etude/data/dataset_state.hpp"
#include "etude/data/shuffle.hpp"
#include "etude/metrics/pending_logs.hpp"
#include "etude/metrics/running_mean.hpp"
#include "etude/precision/grad_scaler.hpp"
#include "etude/reflect/struct.hpp"
#include "etude/trainer_control.hpp"

namespace etude::inline v0 {

/// The training's position in the data, in examples of all processes. The order of an epoch's examples
/// depends only on the seed and the epoch, so the position is enough to continue with the next example, even
/// with another batch size. A stream that has a state continues from its state.
struct DataPosition {
  ETUDE_STRUCT(DataPosition, (std::int64_t, epoch, "the epoch under way, from 0", 0),
               (std::int64_t, examples, "examples of it whose update is done", 0),
               (std::int64_t, padded_examples, "the same, a shorter batch counted in full", 0),
               (std::int64_t, micro_batches, "batches that are done of the group whose update is not", 0),
               (bool, exhausted, "it has no more examples, or they are given up", false));
  /// A stream's state there, or at the end of the previous epoch; null if it has none or hasn't begun.
  std::shared_ptr<const DatasetState> dataset_state = {};

  friend bool operator==(const DataPosition&, const DataPosition&) = default;
};

/// Identifies the training examples, to notice other ones when a training is resumed.
struct DatasetInfo {
  ETUDE_STRUCT(DatasetInfo, (std::optional<std::int64_t>, size, "examples, if it is known"),
               (std::string, fingerprint, "checksum of a few of them; empty if they aren't looked at", ""),
               (std::int64_t, parts, "processes that each have a part of their own, or 1", 1));
};

/// The last update of one of several optimizers.
struct NamedUpdate {
  ETUDE_STRUCT(NamedUpdate, (std::string, optimizer, "its name"),
               (std::optional<double>, grad_norm, "norm of its gradients"),
               (double, learning_rate, "its learning rate", 0.0));
};

/// For a training with several phases: those that are done, and sums over them.
struct DonePhases {
  ETUDE_STRUCT(DonePhases, (std::vector<std::string>, names, "their names"),
               (std::int64_t, steps, "update steps", 0), (std::int64_t, epochs, "epochs that have begun", 0),
               (std::int64_t, skipped_steps, "updates that were skipped", 0));
};

/// The part of a training's progress that TrainerState lacks: a checkpoint's `training_progress.json`.
struct TrainingProgress {
  ETUDE_STRUCT(
      TrainingProgress, (TrainingPhase, phase, "where in its course it is"),
      (DataPosition, position, "where in the data it is"),
      (DonePhases, done_phases, "the phases before the one under way, if it has several"),
      (std::optional<DatasetState>, dataset_state, "state of the train_dataset there, if it has one"),
      (std::optional<DatasetInfo>, train_dataset, "the examples"),
      (std::vector<std::string>, optimizers, "names of the optimizers; none if the only one has no name"),
      (std::int64_t, extra_steps,
       "steps of the phase beyond those of its arguments, because batches had other sizes", 0),
      (std::int64_t, extra_epochs, "likewise", 0),
      (std::int64_t, train_batch_size, "examples of a micro-batch in each process", 0),
      (std::int64_t, world_size, "processes", 1),
      (std::int64_t, gradient_accumulation_steps, "micro-batches of a group", 0),
      (std::int64_t, micro_batch_size,
       "examples that go through the model at once, if memory requires parts; 0 is all", 0),
      (ShuffleOrder, shuffle_order, "how train_dataset is shuffled, if it is", ShuffleOrder::feistel),
      (std::int64_t, last_logged_step, "step of the last log", 0),
      (RunningMeanState, loss, "losses since the last log"),
      (RunningMeanState, total_loss, "losses already logged"),
      (std::int64_t, non_finite_losses, "logged losses that weren't finite", 0),
      (std::optional<std::int64_t>, first_non_finite_loss, "step of the first of them"),
      (std::vector<PendingLogState>, pending_logs, "values that callbacks have logged since"),
      (std::optional<double>, grad_norm, "norm of the last step's gradients"),
      (double, learning_rate, "learning rate of the last step", 0.0),
      (std::vector<NamedUpdate>, named_updates, "the same for each of several optimizers"),
      (std::optional<GradScalerState>, scaler, "that of fp16"),
      (std::int64_t, skipped_steps, "updates that it has skipped", 0),
      (std::int64_t, rejected_in_a_row, "the last steps, all with an update that on_non_finite rejected", 0),
      (TrainerControl, control, "requests not yet honoured"), (std::string, stop_reason, "why it stops"));
};

}  // namespace etude::inline v0
