#pragma once

#include <string>
#include <string_view>

#include "etude/base/error.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

/// Requests from callbacks to the loop. A callback may set a flag in any event; it stays until the loop
/// honours it.
///
/// - `should_log`, `should_evaluate` and `should_save`, in this order: after the next `StepEnd`, the next
/// `EpochEnd` or at the end of the training, before `TrainEnd`, whichever comes first. Nothing is logged
/// unless a step was made since the last log.
/// - `should_training_stop` and `should_epoch_stop`: before the next step begins. Between two micro-batches
///   they end the step, whose gradients are discarded, unless each optimizer has its own loss or the
///   `training_step` makes the steps. A step that has all its gradients is finished.
struct TrainerControl {
  ETUDE_STRUCT(TrainerControl, (bool, should_training_stop, "end the training before the next step", false),
               (bool, should_epoch_stop, "end this epoch before the next step, and continue with the next",
                false),
               (bool, should_save, "write a checkpoint after this step", false),
               (bool, should_evaluate, "evaluate after this step", false),
               (bool, should_log, "log after this step", false));

  /// The reason given with the first request to stop; empty if there is none.
  std::string stop_reason = {};

  /// Sets `should_training_stop` with a reason.
  void request_stop(std::string_view reason);

  /// Adds the requests of `other`.
  void add(const TrainerControl& other);

  friend bool operator==(const TrainerControl&, const TrainerControl&) = default;
};

/// Thrown by a callback, a model or a loss to end training in an orderly way: the current step is abandoned,
/// the epoch's end events are raised, then `Stop` with this message, and `train()` returns. Outside training
/// it is an ordinary exception.
struct StopTraining : Error {
  using Error::Error;
};

/// Runs a part of a training that must not be left half done: a `StopTraining` thrown there becomes a
/// request.
template <class Part>
void stop_later(TrainerControl& control, Part part) {
  try {
    part();
  } catch (const StopTraining& stop) {
    control.request_stop(stop.what());
  }
}

}  // namespace etude::inline v0
