#include "etude/libtorch/allocation_counter.hpp"

#include <c10/core/Allocator.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "etude/base/error.hpp"

namespace etude::inline v0 {

namespace detail {

namespace {

/// The type of the totals that LibTorch reports, which is signed in old versions.
template <class Function>
struct ReportedTotal;
template <class Size>
struct ReportedTotal<void (c10::MemoryReportingInfoBase::*)(void*, std::int64_t, Size, Size, c10::Device)> {
  using Type = Size;
};

}  // namespace

}  // namespace detail

class AllocationCounter::Observer final : public c10::MemoryReportingInfoBase {
 public:
  using Total = detail::ReportedTotal<decltype(&c10::MemoryReportingInfoBase::reportMemoryUsage)>::Type;

  explicit Observer(c10::Device device) : device_(device) {}

  void reportMemoryUsage(void* address, std::int64_t bytes, Total, Total, c10::Device device) override {
    if (device.type() != device_.type() || (device_.has_index() && device != device_)) return;
    const std::lock_guard lock(mutex_);  // CUDA's backward passes run in separate threads
    if (bytes > 0) {
      blocks_[address] = bytes;
      allocated_ += bytes;
      peak_ = std::max(peak_, allocated_);
    } else if (const auto block = blocks_.find(address); block != blocks_.end()) {  // not an older block
      allocated_ -= block->second;
      blocks_.erase(block);
    }
  }
  bool memoryProfilingEnabled() const override { return true; }

  std::int64_t allocated() const {
    const std::lock_guard lock(mutex_);
    return allocated_;
  }
  std::int64_t peak() const {
    const std::lock_guard lock(mutex_);
    return peak_;
  }
  void reset_peak() {
    const std::lock_guard lock(mutex_);
    peak_ = allocated_;
  }

 private:
  c10::Device device_;
  mutable std::mutex mutex_;
  std::unordered_map<const void*, std::int64_t> blocks_;
  std::int64_t allocated_ = 0, peak_ = 0;
};

AllocationCounter::AllocationCounter(c10::Device device)
    : observer_([&] {
        if (c10::ThreadLocalDebugInfo::get(c10::DebugInfoKind::PROFILER_STATE) != nullptr)
          throw Error("memory can't be counted while a profiler counts it in the same thread");
        return std::make_shared<Observer>(device);
      }()),
      scope_(c10::DebugInfoKind::PROFILER_STATE, observer_) {}

std::int64_t AllocationCounter::allocated() const { return observer_->allocated(); }

std::int64_t AllocationCounter::peak() const { return observer_->peak(); }

void AllocationCounter::reset_peak() { observer_->reset_peak(); }

}  // namespace etude::inline v0
