#pragma once

#include <c10/core/Event.h>
#include <torch/types.h>

#include <optional>

namespace etude::inline v0 {

/// A moment in the work of a device, such as the end of an asynchronous copy to the host. On the CPU, there
/// is nothing to wait for.
class DeviceEvent {
 public:
  /// The moment when all work queued on the device's current stream so far is done.
  void record(torch::Device device);
  /// Waits for that moment; work queued later may still be running.
  void wait();

 private:
  std::optional<c10::Event> event_;
};

}  // namespace etude::inline v0
