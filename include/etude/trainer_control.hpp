#pragma once

#include <string>
#include <string_view>

#include "etude/base/error.hpp"
#include "etude/reflect/struct.hpp"

namespace etude {

/// What callbacks ask of the loop: each may set a flag in any event, and the loop honours it at the next
/// point where it can be.
struct TrainerControl {
  ETUDE_STRUCT(TrainerControl, (bool, should_training_stop, "end the training", false),
               (bool, should_epoch_stop, "go on with the next epoch", false),
               (bool, should_save, "write a checkpoint at the end of this step", false),
               (bool, should_evaluate, "evaluate at the end of this step", false),
               (bool, should_log, "log at the end of this step", false));

  /// Why the training was asked to stop, by who asked first; empty while nobody did, or gave no reason.
  std::string stop_reason = {};

  /// Sets `should_training_stop` and says why.
  void request_stop(std::string_view reason) {
    should_training_stop = true;
    if (stop_reason.empty()) stop_reason = reason;
  }

  /// Asks for what `other` asks for, too.
  void add(const TrainerControl& other) {
    if (other.should_training_stop) request_stop(other.stop_reason);
    should_epoch_stop |= other.should_epoch_stop;
    should_save |= other.should_save;
    should_evaluate |= other.should_evaluate;
    should_log |= other.should_log;
  }

  friend bool operator==(const TrainerControl&, const TrainerControl&) = default;
};

/// Thrown by a callback, a model or a loss to end training in good order: what was begun of the step is given
/// up, the epoch gets its end events, then `Stop` is raised with this message, and `train()` returns. Outside
/// of training it is an error like any other.
struct StopTraining : Error {
  using Error::Error;
};

/// Runs a part of a training that is not to be left half done: a `StopTraining` out of it is a request.
template <class Part>
void stop_later(TrainerControl& control, Part part) {
  try {
    part();
  } catch (const StopTraining& stop) {
    control.request_stop(stop.what());
  }
}

}  // namespace etude
