#include "etude/libtorch/memory_usage.hpp"

#include <sys/resource.h>
#include <torch/version.h>

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 9)
#define ETUDE_HAS_DEVICE_STATISTICS 1
#include <c10/core/CachingDeviceAllocator.h>
#else
#define ETUDE_HAS_DEVICE_STATISTICS 0
#endif

#if defined(__APPLE__)
#include <mach/mach.h>
#endif

namespace etude::inline v0 {

namespace detail {

#if ETUDE_HAS_DEVICE_STATISTICS
namespace {

/// Null if the device's allocator has no statistics.
c10::DeviceAllocator* device_allocator(c10::Device device) {
  if (device.is_cpu()) return nullptr;
  auto* allocator = dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(device.type()));
  return allocator != nullptr && allocator->initialized() ? allocator : nullptr;
}

}  // namespace

#endif

namespace {

/// A line of Linux's /proc/self/status, in bytes; 0 if missing.
std::int64_t process_status(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    std::int64_t kibibytes = 0;
    if (word == name + ":" && status >> kibibytes) return kibibytes * 1024;
  }
  return 0;
}

}  // namespace

}  // namespace detail

std::optional<DeviceMemory> device_memory([[maybe_unused]] c10::Device device) {
#if ETUDE_HAS_DEVICE_STATISTICS
  if (auto* allocator = detail::device_allocator(device)) {
    const auto statistics = allocator->getDeviceStats(device.has_index() ? device.index() : 0);
    const auto& allocated = statistics.allocated_bytes[0];  // across all pools
    const auto& reserved = statistics.reserved_bytes[0];
    return DeviceMemory{allocated.current, allocated.peak, reserved.current, reserved.peak};
  }
#endif
  return std::nullopt;
}

void reset_peak_device_memory([[maybe_unused]] c10::Device device) {
#if ETUDE_HAS_DEVICE_STATISTICS
  if (auto* allocator = detail::device_allocator(device))
    allocator->resetPeakStats(device.has_index() ? device.index() : 0);
#endif
}

std::int64_t resident_memory() {
#if defined(__APPLE__)
  mach_task_basic_info info{};
  mach_msg_type_number_t count = MACH_TASK_BASIC_INFO_COUNT;
  const auto reported =
      task_info(mach_task_self(), MACH_TASK_BASIC_INFO, reinterpret_cast<task_info_t>(&info), &count);
  return reported == KERN_SUCCESS ? static_cast<std::int64_t>(info.resident_size) : 0;
#else
  return detail::process_status("VmRSS");
#endif
}

std::int64_t peak_resident_memory() {
#if defined(__APPLE__)
  rusage usage{};
  return getrusage(RUSAGE_SELF, &usage) == 0 ? static_cast<std::int64_t>(usage.ru_maxrss) : 0;
#else
  return detail::process_status("VmHWM");
#endif
}

bool reset_peak_resident_memory() {
#if defined(__linux__)
  std::ofstream file("/proc/self/clear_refs");
  return static_cast<bool>(file << "5" << std::flush);
#else
  return false;
#endif
}

}  // namespace etude::inline v0
