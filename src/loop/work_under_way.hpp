#pragma once

#include <optional>

#include "checkpoints.hpp"
#include "etude/base/interrupt.hpp"
#include "etude/loop/core.hpp"
#include "etude/loop/event_source.hpp"

namespace etude::inline v0 {

/// The accumulation group or evaluation under way: where a resumed training begins it again, and the
/// checkpoint that a training writes if it ends within one.
class WorkUnderWay {
 public:
  /// Both must outlive this.
  WorkUnderWay(EventSource& events, TrainingCheckpoints& checkpoints)
      : events_(events), core_(events.core()), checkpoints_(checkpoints) {}

  /// Called after `TrainBegin`: a training that was resumed within an epoch has yet to begin it again.
  void begin_reentry();
  /// Called when nothing is left to begin again.
  void finish_reentry() { remaining_ = Reentry::nothing; }

  /// Whether the epoch that begins is the checkpoint's.
  bool reenters_epoch() const { return remaining_ == Reentry::epoch; }
  /// Called after the `EpochBegin` of that epoch: restores what its handlers changed.
  void enter_epoch();

  /// Remembers the beginning of a group, if it may have to be repeated or saved.
  void begin_group();
  /// Restores a half-done group of the checkpoint; false if the group is a new one.
  bool enter_group();
  /// Resets a group that was given up, or couldn't continue after an interruption, so that it starts again.
  /// Does nothing if no group is under way.
  void forget_group();
  /// Resets a half-done group of the checkpoint, so that it starts again; false if there is none.
  bool forget_half_done();

  /// Remembers the beginning of an evaluation, if it may have to be saved.
  void begin_evaluation();

  /// Called when the group or evaluation is done.
  void end();
  /// Called when the group or evaluation is abandoned.
  void give_up();

  /// Returns the state before handlers hear of an exception, for a training that has no work under way.
  SafePoint at_exception();
  /// Writes a checkpoint of the beginning of the unfinished work or, without any, of `now`.
  void save_after_exception(const std::optional<SafePoint>& now);
  /// Writes a checkpoint, with a half-done group or from the beginning of an evaluation.
  void save_after(const Interrupted& interrupted);

 private:
  /// The outermost part that must begin again before a resumed training reaches the point of its checkpoint.
  enum class Reentry { training, epoch, group, nothing };

  /// Whether the next group is the checkpoint's; from then on, nothing is left to reenter.
  bool reenters_group();
  /// False once the best weights may have been loaded, and in a resumed training that has not yet passed its
  /// checkpoint.
  bool may_save() const;

  EventSource& events_;
  TrainerCore& core_;
  TrainingCheckpoints& checkpoints_;
  std::optional<SafePoint> begin_;
  Reentry remaining_ = Reentry::training;
};

}  // namespace etude::inline v0
