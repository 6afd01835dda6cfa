#pragma once

#include <cerrno>
#include <string>

#include "etude/base/error.hpp"

namespace etude::inline v0 {

/// A file can't be written because the disk or a quota is full, or because the process may not write larger
/// files.
struct DiskFullError : CheckpointError {
  using CheckpointError::CheckpointError;
};

namespace detail {

/// Throws DiskFullError if `reason`, an `errno`, is a lack of room, else CheckpointError.
[[noreturn]] inline void throw_file_error(const std::string& text, int reason) {
  if (reason == ENOSPC || reason == EDQUOT || reason == EFBIG) throw DiskFullError(text);
  throw CheckpointError(text);
}

}  // namespace detail
}  // namespace etude::inline v0
