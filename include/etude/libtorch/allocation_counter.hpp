#pragma once

#include <c10/core/Device.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <cstdint>
#include <memory>

namespace etude::inline v0 {

/// While it lives, counts the bytes of the tensors that this thread and its backward passes allocate on a
/// device. LibTorch reports each allocation, on the CPU and on CUDA, but not the memory that its libraries
/// take for themselves.
class AllocationCounter {
 public:
  /// Throws Error if something else is already counting in this thread, such as LibTorch's profiler.
  explicit AllocationCounter(c10::Device device);

  /// The memory allocated since the beginning and not yet freed.
  std::int64_t allocated() const;
  /// The maximum of `allocated` since the beginning or `reset_peak`.
  std::int64_t peak() const;
  void reset_peak();

 private:
  class Observer;

  std::shared_ptr<Observer> observer_;
  c10::DebugInfoGuard scope_;
};

}  // namespace etude::inline v0
