#pragma once

#include "etude/error.hpp"

namespace etude {

/// Thrown by a callback, a model or a loss to end training in good order: what was begun of the step is given
/// up, the epoch gets its end events, then `Stop` is raised with this message, and `train()` returns. Outside
/// of training it is an error like any other.
struct StopTraining : Error {
  using Error::Error;
};

}  // namespace etude
