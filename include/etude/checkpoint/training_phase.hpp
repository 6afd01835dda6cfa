#pragma once

#include "etude/reflect/enum.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

/// The stages of a training: before its first step, in its epochs, honouring the requests after its last
/// step, with those honoured, and with its last checkpoint on the disk.
ETUDE_ENUM(TrainingStage, starting, epochs, finishing, finished, done);

/// The phases of an epoch: between two epochs, after EpochBegin, its steps, after StepEnd, after EpochEnd,
/// and when nothing of it is left. Requests are honoured in `step_end` and `epoch_end`.
ETUDE_ENUM(EpochPhase, between, begun, steps, step_end, epoch_end, over);

/// Where a training is in its course, as docs/architecture.md draws it. A checkpoint has it, and a resumed
/// training enters there.
struct TrainingPhase {
  ETUDE_STRUCT(TrainingPhase, (TrainingStage, stage, "stage of the training", TrainingStage::starting),
               (EpochPhase, epoch, "phase of the epoch under way", EpochPhase::between));

  /// Both throw Error if the training can't come there from here.
  void enter(TrainingStage next);
  void enter(EpochPhase next);

  /// Leaves the phase in which requests are honoured.
  void settle();

  /// Goes back from the end of a training that was resumed to do more. If an epoch is open, requests that are
  /// pending become those of its end.
  void continue_training();

  bool has_started() const { return stage != TrainingStage::starting; }
  bool is_at_end() const { return stage >= TrainingStage::finishing; }
  bool epoch_is_open() const { return epoch != EpochPhase::between; }
  bool epoch_has_ended() const { return epoch >= EpochPhase::epoch_end; }

  friend bool operator==(const TrainingPhase&, const TrainingPhase&) = default;
};

}  // namespace etude::inline v0
