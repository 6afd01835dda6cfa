#pragma once

#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

namespace etude {

/// The base of every exception that Etude itself throws. Exceptions of callbacks, models, losses and datasets
/// come out as they were thrown; those of LibTorch (c10::Error and its kin) say in their text which model,
/// step and batch they came from, and have stack frames only with TORCH_SHOW_CPP_STACKTRACES in the
/// environment.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A field of an arguments struct, a trainer option or a combination of them that can't be honoured. `what()`
/// lists every fault that was found, one a line: the field, its value, what is allowed.
struct ArgumentError : Error {
  using Error::Error;
};

/// A dataset, batch, model output or loss of the wrong size, shape or kind.
struct DataError : Error {
  using Error::Error;
};

/// A metric that was asked for by name and is not among those that were computed.
struct MetricError : Error {
  using Error::Error;
};

/// A file or folder that should hold a checkpoint or a part of one and doesn't, or can't be written.
struct CheckpointError : Error {
  using Error::Error;
};

/// The message of an exception, in UTF-8.
std::string message_of(const std::exception_ptr& error);

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/base/impl/error.ipp"
#endif
