#pragma once

#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include "etude/base/linkage.hpp"

namespace etude::inline v0 {

/// The base of every exception that Etude itself throws. Exceptions from callbacks, models, losses and
/// datasets propagate unchanged; LibTorch's (c10::Error and its subclasses) get the model, step and batch
/// prepended to their text, and keep their stack frames only if TORCH_SHOW_CPP_STACKTRACES is set in the
/// environment.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// An invalid field of an arguments struct, an invalid trainer option, or an invalid combination of them.
/// `what()` lists every problem found, one per line: the field, its value and the allowed values.
struct ArgumentError : Error {
  using Error::Error;
};

/// A dataset, batch, model output or loss of the wrong size, shape or type.
struct DataError : Error {
  using Error::Error;
};

/// A metric was requested by name but wasn't computed.
struct MetricError : Error {
  using Error::Error;
};

/// A file or folder isn't a valid checkpoint (or part of one), or can't be written.
struct CheckpointError : Error {
  using Error::Error;
};

/// Another process of the training has failed, or can't be reached. `what()` names this rank and the missing
/// ranks.
struct CommunicationError : Error {
  using Error::Error;
};

/// The message of an exception, in UTF-8.
std::string message_of(const std::exception_ptr& error);

}  // namespace etude::inline v0
