#include "etude/io/disk_full.hpp"

#include <string>

namespace etude::inline v0::detail {

void throw_file_error(const std::string& text, int reason) {
  if (reason == ENOSPC || reason == EDQUOT || reason == EFBIG) throw DiskFullError(text);
  throw CheckpointError(text);
}

}  // namespace etude::inline v0::detail
