#pragma once

#include "etude/error.hpp"
#include "etude/trainer_control.hpp"

namespace etude {

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
