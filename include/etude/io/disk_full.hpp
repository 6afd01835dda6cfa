#pragma once

#include <string>

#include "etude/base/error.hpp"

namespace etude::inline v0 {

/// Thrown when a file can't be written because the disk or a quota is full, or because it would exceed the
/// process's file size limit.
struct DiskFullError : CheckpointError {
  using CheckpointError::CheckpointError;
};

namespace detail {

/// Throws DiskFullError if `reason`, an `errno`, means that space ran out, otherwise CheckpointError.
[[noreturn]] void throw_file_error(const std::string& text, int reason);

}  // namespace detail
}  // namespace etude::inline v0
