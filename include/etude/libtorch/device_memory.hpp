#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <optional>

namespace etude {

/// What LibTorch's allocator has of a device's memory, in bytes: for tensors, and in all, with what it
/// keeps for later ones.
struct DeviceMemory {
  std::int64_t allocated = 0;
  std::int64_t peak_allocated = 0;
  std::int64_t reserved = 0;
  std::int64_t peak_reserved = 0;
};

/// Nothing for the CPU, before anything was allocated on a device, and with a LibTorch before 2.9, whose
/// statistics need the headers of the device. Nobody waits for the device.
std::optional<DeviceMemory> device_memory(c10::Device device);

/// Begins the peaks of a device anew, where `device_memory` has any.
void reset_peak_device_memory(c10::Device device);

/// The memory of this process that is in RAM, in bytes; 0 where the system doesn't say.
std::int64_t resident_memory();

/// The most that it was, since the process began or since `reset_peak_resident_memory`.
std::int64_t peak_resident_memory();

/// Begins that peak anew, for the whole process. False where the system has no way to do it.
bool reset_peak_resident_memory();

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/libtorch/impl/device_memory.ipp"
#endif
