#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <optional>

#include "etude/base/linkage.hpp"

namespace etude {

/// The value of a one-element tensor on its way to the host. `begin` doesn't wait for a CUDA device, and
/// `get` waits no longer than until it has done what it was given before `begin`: what it was given since
/// keeps it at work meanwhile. Tensors of other devices are read at once. A copy of this has nothing on its
/// way.
class ScalarCopy {
 public:
  ScalarCopy() = default;
  ScalarCopy(const ScalarCopy&) {}
  ScalarCopy& operator=(const ScalarCopy&) { return *this = ScalarCopy(); }
  ScalarCopy(ScalarCopy&&) = default;
  ScalarCopy& operator=(ScalarCopy&&) = default;
  ~ScalarCopy() = default;

  /// `value` must be one element.
  void begin(const at::Tensor& value);

  /// Whether there is something to `get`.
  bool pending() const { return pending_; }

  double get();

 private:
  at::Tensor host_;  // page-locked, as a copy that nobody waits for needs it
  std::optional<c10::Event> event_;
  double value_ = 0;
  bool pending_ = false;
  bool on_its_way_ = false;
};

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/libtorch/impl/scalar_copy.ipp"
#endif
