#include "etude/callbacks/move_modules_to_device.hpp"

#include <algorithm>

#include "etude/base/error.hpp"

namespace etude::inline v0 {

void MoveModulesToDeviceCallback::check() const {
  if (std::ranges::count(modules_, nullptr) > 0)
    throw ArgumentError("MoveModulesToDeviceCallback: a module is a null pointer or an empty holder");
}

void MoveModulesToDeviceCallback::move(const Model& model) const {
  const auto tensors = model.state_dict();
  if (tensors.empty()) return;
  for (const auto& module : modules_) module->to(tensors.front().second.device());
}

}  // namespace etude::inline v0
