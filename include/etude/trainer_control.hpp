#pragma once

#include <string>
#include <string_view>

#include "etude/base/error.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

/// Requests from callbacks to the loop: each may set a flag in any event, and the loop acts on it at the next
/// possible point.
struct TrainerControl {
  ETUDE_STRUCT(TrainerControl, (bool, should_training_stop, "end the training", false),
               (bool, should_epoch_stop, "end this epoch and continue with the next", false),
               (bool, should_save, "write a checkpoint at the end of this step", false),
               (bool, should_evaluate, "evaluate at the end of this step", false),
               (bool, should_log, "log at the end of this step", false));

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
