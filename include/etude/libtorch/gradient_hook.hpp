#pragma once

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

namespace etude::inline v0::libtorch {

/// A shared_ptr or an intrusive_ptr, depending on the version of LibTorch.
using NodePointer = decltype(torch::autograd::impl::grad_accumulator(std::declval<const torch::Tensor&>()));

/// Makes a node of the autograd graph.
template <class Node, class... Arguments>
auto make_node(Arguments&&... arguments) {
  if constexpr (std::is_same_v<NodePointer, std::shared_ptr<typename NodePointer::element_type>>)
    return std::make_shared<Node>(std::forward<Arguments>(arguments)...);
  else
    return c10::make_intrusive<Node>(std::forward<Arguments>(arguments)...);
}

/// Calls a function whenever a backward pass has accumulated a parameter's gradient, as long as this object
/// lives and the parameter keeps its dtype and device. The function runs in the thread of that pass. A
/// parameter that is frozen has no hook, even if it is unfrozen later.
class GradientHook {
 public:
  GradientHook(const torch::Tensor& parameter, std::function<void()> call);
  GradientHook(GradientHook&& other) noexcept : node_(std::move(other.node_)), key_(other.key_) {}
  GradientHook& operator=(GradientHook&&) = delete;
  ~GradientHook();

  /// Whether there is a hook: false if the parameter was frozen.
  bool exists() const { return node_ != nullptr; }

  /// Whether the parameter's gradients still call the function.
  bool is_hooked_to(const torch::Tensor& parameter) const;

 private:
  NodePointer node_;  // a tensor keeps only a weak pointer to it
  std::uintptr_t key_ = 0;
};

}  // namespace etude::inline v0::libtorch
