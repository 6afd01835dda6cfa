#include "etude/loop/part_size.hpp"

#include <algorithm>

#include "etude/base/message.hpp"
#include "etude/libtorch/memory.hpp"

namespace etude::inline v0 {

bool PartSize::shrink(const std::exception_ptr& error, std::int64_t batch_size) {
  const auto size = std::min(of(batch_size), batch_size);
  if (!args_.auto_microbatching || size < 2 || !is_out_of_memory(error)) return false;
  size_ = (size + 1) / 2;
  message(args_, LogLevel::warning,
          "memory ran out: batches go through the model {} examples at a time from now on", size_);
  return true;
}

void PartSize::load_state(std::int64_t size) {
  if (args_.auto_microbatching && size > 0) size_ = size;
}

}  // namespace etude::inline v0
