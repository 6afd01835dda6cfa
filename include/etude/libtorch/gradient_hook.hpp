#pragma once

#include <torch/csrc/autograd/variable.h>
#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <utility>

#include "etude/base/linkage.hpp"

namespace etude::inline v0::libtorch {

/// Calls a function whenever a backward pass has accumulated a gradient of a parameter, as long as this lives
/// and the parameter keeps its dtype and device. It is called in the thread of that pass.
class GradientHook {
 public:
  GradientHook(const torch::Tensor& parameter, std::function<void()> call);
  GradientHook(GradientHook&& other) noexcept : node_(std::move(other.node_)), key_(other.key_) {}
  GradientHook& operator=(GradientHook&&) = delete;
  ~GradientHook();

  /// Whether the parameter's gradients still call it.
  bool is_hooked_to(const torch::Tensor& parameter) const;

 private:
  // A shared_ptr or an intrusive_ptr, depending on the version of LibTorch. A tensor holds it weakly.
  using Node = decltype(torch::autograd::impl::grad_accumulator(std::declval<const torch::Tensor&>()));

  Node node_;
  std::uintptr_t key_ = 0;
};

}  // namespace etude::inline v0::libtorch

#ifndef ETUDE_COMPILED
#include "etude/libtorch/impl/gradient_hook.ipp"
#endif
