#pragma once

#include <ATen/core/Tensor.h>

#include "etude/libtorch/device_event.hpp"

namespace etude::inline v0 {

/// An asynchronous copy of a one-element tensor to the host. `begin` doesn't wait for a CUDA device; `get`
/// waits only for work queued before `begin`, so the device stays busy with later work. Tensors on other
/// devices are read at once. A copy of this object has nothing pending.
class ScalarCopy {
 public:
  ScalarCopy() = default;
  ScalarCopy(const ScalarCopy&) {}
  ScalarCopy& operator=(const ScalarCopy&) { return *this = ScalarCopy(); }
  ScalarCopy(ScalarCopy&&) = default;
  ScalarCopy& operator=(ScalarCopy&&) = default;
  ~ScalarCopy() = default;

  /// `value` must have exactly one element.
  void begin(const at::Tensor& value);

  /// Whether a value is waiting for `get`.
  bool pending() const { return pending_; }

  double get();

 private:
  at::Tensor host_;  // pinned, as asynchronous copies require
  DeviceEvent event_;
  double value_ = 0;
  bool pending_ = false;
  bool on_its_way_ = false;
};

}  // namespace etude::inline v0
