#pragma once

#include <cstdint>
#include <exception>

namespace etude::inline v0::detail {

/// The example whose `get` threw `error`.
struct FailedExample {
  std::exception_ptr error = nullptr;
  std::int64_t index = 0;
};

/// The last failed example in this thread, or in a worker that reported it to this thread.
inline FailedExample& last_failed_example() {
  thread_local FailedExample example;
  return example;
}

}  // namespace etude::inline v0::detail
