#pragma once

#include <cstdint>
#include <exception>

namespace etude::detail {

/// The example whose `get` has thrown `error`.
struct FailedExample {
  std::exception_ptr error = nullptr;
  std::int64_t index = 0;
};

/// The last one that this thread has asked for, or has heard of from the worker that did.
inline FailedExample& last_failed_example() {
  thread_local FailedExample example;
  return example;
}

}  // namespace etude::detail
