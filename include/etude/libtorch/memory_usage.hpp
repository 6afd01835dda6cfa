#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <optional>

namespace etude::inline v0 {

/// A device's memory held by LibTorch's allocator, in bytes: for tensors, and in total, including its cache.
struct DeviceMemory {
  std::int64_t allocated = 0;
  std::int64_t peak_allocated = 0;
  std::int64_t reserved = 0;
  std::int64_t peak_reserved = 0;
};

/// Unset for the CPU, before the first allocation on a device, and before LibTorch 2.9, whose statistics need
/// the device's headers. Doesn't synchronize with the device.
std::optional<DeviceMemory> device_memory(c10::Device device);

/// Resets the peaks of a device, if `device_memory` supports it.
void reset_peak_device_memory(c10::Device device);

/// The resident memory of this process in bytes; 0 if the system doesn't report it.
std::int64_t resident_memory();

/// The peak resident memory since the process started or since `reset_peak_resident_memory`.
std::int64_t peak_resident_memory();

/// Resets that peak for the whole process. Returns false if the system doesn't support it.
bool reset_peak_resident_memory();

}  // namespace etude::inline v0
