#pragma once

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
[[noreturn]] void throw_file_error(const std::string& text, int reason);

}  // namespace detail
}  // namespace etude::inline v0
