#pragma once

#include "etude/reflect/enum.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

/// The stages of a training: `starting` before its first step, `epochs`, `finishing` while the requests made
/// in its last step are honoured, `finished` once they are, and `done` once its last checkpoint is on disk.
ETUDE_ENUM(TrainingStage, starting, epochs, finishing, finished, done);

/// The stages of an epoch: `between` two epochs, `begun` after EpochBegin, its `steps`, `step_end` after
/// StepEnd, `epoch_end` after EpochEnd, and `over` when nothing of it is left. Requests are honoured in
/// `step_end` and `epoch_end`.
ETUDE_ENUM(EpochStage, between, begun, steps, step_end, epoch_end, over);

/// How far a training is, as a state of the state machine in docs/architecture.md. A checkpoint stores it,
/// and a resumed training continues from it.
struct LoopState {
  ETUDE_STRUCT(LoopState, (TrainingStage, stage, "stage of the training", TrainingStage::starting),
               (EpochStage, epoch, "stage of the current epoch", EpochStage::between));

  /// Moves to another stage. Throws Error if the current one doesn't allow that.
  void enter(TrainingStage next);
  void enter(EpochStage next);

  /// Leaves the stage in which requests are honoured.
  void settle();

  /// Returns from the end to the epochs of a training that was resumed to do more. If an epoch is open,
  /// pending requests are honoured at its end.
  void continue_training();

  bool has_started() const { return stage != TrainingStage::starting; }
  bool is_at_end() const { return stage >= TrainingStage::finishing; }
  bool epoch_is_open() const { return epoch != EpochStage::between; }
  bool epoch_has_ended() const { return epoch >= EpochStage::epoch_end; }

  friend bool operator==(const LoopState&, const LoopState&) = default;
};

}  // namespace etude::inline v0
