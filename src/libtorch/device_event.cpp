#include "etude/libtorch/device_event.hpp"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <thread>

namespace etude::inline v0 {

void DeviceEvent::record(torch::Device device) {
  if (device.is_cpu()) return event_.reset();
  if (!event_ || event_->device_type() != device.type()) event_.emplace(device.type());
  event_->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
}

void DeviceEvent::wait() {
  while (event_ && !event_->query()) std::this_thread::yield();
}

}  // namespace etude::inline v0
