#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "etude/checkpoint/loop_state.hpp"
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
  ETUDE_STRUCT(DataPosition, (std::int64_t, epoch, "the current epoch, from 0", 0),
               (std::int64_t, examples, "examples of the epoch whose update is done", 0),
               (std::int64_t, padded_examples, "the same, with shorter batches counted as full ones", 0),
               (std::int64_t, micro_batches, "micro-batches done in the group whose update isn't done", 0),
               (bool, exhausted, "the epoch has no more examples, or they are skipped", false));
  /// A stream's state at this position, or at the end of the previous epoch; null if the stream has no state
  /// or hasn't begun.
  std::shared_ptr<const DatasetState> dataset_state = {};

  friend bool operator==(const DataPosition&, const DataPosition&) = default;
};

/// Identifies the training examples, so that a resumed training notices different ones.
struct DatasetInfo {
  ETUDE_STRUCT(DatasetInfo, (std::optional<std::int64_t>, size, "number of examples, if it is known"),
               (std::string, fingerprint, "checksum of a few examples; empty if they aren't read", ""),
               (std::int64_t, parts, "number of processes if each has its part of the data, or 1", 1));
};

/// The last update of one of several optimizers.
struct NamedUpdate {
  ETUDE_STRUCT(NamedUpdate, (std::string, optimizer, "its name"),
               (std::optional<double>, grad_norm, "norm of its gradients"),
               (double, learning_rate, "its learning rate", 0.0));
};

/// For a training with several phases: the phases that are done, and sums over them.
struct DonePhases {
  ETUDE_STRUCT(DonePhases, (std::vector<std::string>, names, "their names"),
               (std::int64_t, steps, "update steps", 0), (std::int64_t, epochs, "epochs that have begun", 0),
               (std::int64_t, skipped_steps, "updates that were skipped", 0));
};

/// The part of a training's progress that TrainerState lacks: a checkpoint's `training_progress.json`.
struct TrainingProgress {
  ETUDE_STRUCT(
      TrainingProgress, (LoopState, loop, "how far the training is"),
      (DataPosition, position, "position in the data"),
      (DonePhases, done_phases, "the phases before the current one, if there are several"),
      (std::optional<DatasetState>, dataset_state, "state of the train_dataset there, if it has one"),
      (std::optional<DatasetInfo>, train_dataset, "the examples"),
      (std::vector<std::string>, optimizers, "names of the optimizers; empty if the only one has no name"),
      (std::int64_t, extra_steps,
       "steps of the phase beyond those in its arguments, because batch sizes changed", 0),
      (std::int64_t, extra_epochs, "epochs beyond those, for the same reason", 0),
      (std::int64_t, train_batch_size, "examples in a micro-batch of each process", 0),
      (std::int64_t, world_size, "number of processes", 1),
      (std::int64_t, gradient_accumulation_steps, "micro-batches in a group", 0),
      (std::int64_t, micro_batch_size,
       "examples that go through the model at once, if memory is short; 0 means all", 0),
      (ShuffleOrder, shuffle_order, "how train_dataset is shuffled, if it is", ShuffleOrder::feistel),
      (std::int64_t, last_logged_step, "step of the last log", 0),
      (RunningMeanState, loss, "losses since the last log"),
      (RunningMeanState, total_loss, "losses already logged"),
      (std::int64_t, non_finite_losses, "logged losses that weren't finite", 0),
      (std::optional<std::int64_t>, first_non_finite_loss, "step of the first one"),
      (std::vector<PendingLogState>, pending_logs, "values that callbacks have logged since"),
      (std::optional<double>, grad_norm, "norm of the last step's gradients"),
      (double, learning_rate, "learning rate of the last step", 0.0),
      (std::vector<NamedUpdate>, named_updates, "the same for each of several optimizers"),
      (std::optional<GradScalerState>, scaler, "state of the fp16 gradient scaler"),
      (std::int64_t, skipped_steps, "updates that the scaler has skipped", 0),
      (std::int64_t, rejected_in_a_row, "number of last steps whose updates on_non_finite rejected", 0),
      (TrainerControl, control, "requests not yet honoured"),
      (std::string, stop_reason, "why the training stops"));
};

}  // namespace etude::inline v0
