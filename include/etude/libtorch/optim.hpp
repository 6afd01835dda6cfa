#pragma once

#include <ATen/Parallel.h>
#include <torch/optim/optimizer.h>
#include <torch/types.h>
#include <torch/version.h>

#include <cstdint>
#include <memory>
#include <sstream>
#include <type_traits>
#include <utility>
#include <vector>

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 4)
#define ETUDE_HAS_FUSED_OPTIMIZERS 1
#include <ATen/ops/_fused_adagrad.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/full.h>
#else
#define ETUDE_HAS_FUSED_OPTIMIZERS 0
#endif

/// Hides differences in optimizers between LibTorch versions.
namespace etude::inline v0::libtorch {

/// Whether LibTorch's fused kernels for Adam, AdamW and SGD are faster for a vector like `values`. LibTorch
/// 2.4 and later have them, for the CPU and CUDA. On the CPU they wake all threads, however few the elements,
/// and need the step count in a tensor, so below 16,384 elements our own kernels are faster.
inline bool has_fused_optimizers(const torch::Tensor& values) {
  return ETUDE_HAS_FUSED_OPTIMIZERS && (values.is_cuda() || (values.is_cpu() && values.numel() >= 16'384));
}

/// Whether Adam, AdamW and SGD have kernels that take the learning rate from a tensor, for a vector like
/// `values`.
inline bool has_capturable_kernels(const torch::Tensor& values) {
  return ETUDE_HAS_FUSED_OPTIMIZERS && (values.is_cuda() || values.is_cpu());
}

/// Like `has_fused_optimizers`, for Adagrad, whose CUDA kernel was added later.
inline bool has_fused_adagrad(const torch::Tensor& values) {
  return values.is_cpu() && has_fused_optimizers(values);
}

/// The parameters of one Adam update, or of AdamW if `decoupled`.
struct FusedAdam {
  double lr, beta1, beta2, eps, weight_decay;
  bool amsgrad, decoupled;
};

struct FusedSgd {
  double lr, momentum, dampening, weight_decay;
  bool nesterov, first;
};

struct FusedAdagrad {
  double lr, lr_decay, eps, weight_decay;
};

using TensorLists = std::vector<std::vector<torch::Tensor>>;

#if ETUDE_HAS_FUSED_OPTIMIZERS

namespace detail {

/// The divisor that the kernels apply to the gradients, in place.
inline torch::optional<torch::Tensor> divisor(at::TensorList values, double gradient_scale) {
  if (gradient_scale == 1) return {};
  return at::full({}, 1 / gradient_scale, values[0].options().dtype(at::kFloat));
}

}  // namespace detail

/// If `rate`, a 0-dim float32 tensor on the device, is defined, it is the learning rate. All lists have the
/// same length. `moments` are the mean, the mean of squares, and with amsgrad the maximum of the latter.
/// `steps` are 0-dim float32 tensors on the device that count the updates, including this one. Here and
/// below, the gradients are multiplied by `gradient_scale`.
inline void fused_adam(at::TensorList values, at::TensorList gradients, const TensorLists& moments,
                       at::TensorList steps, const FusedAdam& a, double gradient_scale,
                       const torch::Tensor& rate = {}) {
  const at::TensorList maxima = a.amsgrad ? at::TensorList(moments[2]) : at::TensorList();
  const auto kernel = [&](auto function) {
    const auto call = [&](const auto& lr) {
      function(values, gradients, moments[0], moments[1], maxima, steps, lr, a.beta1, a.beta2, a.weight_decay,
               a.eps, a.amsgrad, /*maximize=*/false, detail::divisor(values, gradient_scale));
    };
    rate.defined() ? call(rate) : call(a.lr);
  };
  if (a.decoupled) {
    kernel([](auto&&... arguments) { at::_fused_adamw_(arguments...); });
  } else {
    kernel([](auto&&... arguments) { at::_fused_adam_(arguments...); });
  }
}

/// `moments` is empty without momentum.
inline void fused_sgd(at::TensorList values, at::TensorList gradients, const TensorLists& moments,
                      const FusedSgd& s, double gradient_scale, const torch::Tensor& rate = {}) {
  const at::TensorList momenta = moments.empty() ? at::TensorList() : at::TensorList(moments[0]);
  const auto call = [&](const auto& lr) {
    at::_fused_sgd_(values, gradients, momenta, s.weight_decay, s.momentum, lr, s.dampening, s.nesterov,
                    /*maximize=*/false, s.first, detail::divisor(values, gradient_scale));
  };
  rate.defined() ? call(rate) : call(s.lr);
}

inline void fused_adagrad(at::TensorList values, at::TensorList gradients, const TensorLists& moments,
                          at::TensorList steps, const FusedAdagrad& a, double gradient_scale) {
  at::_fused_adagrad_(values, gradients, moments[0], steps, a.lr, a.lr_decay, a.weight_decay, a.eps,
                      /*maximize=*/false, detail::divisor(values, gradient_scale));
}

#else

inline void fused_adam(at::TensorList, at::TensorList, const TensorLists&, at::TensorList, const FusedAdam&,
                       double, const torch::Tensor& = {}) {}
inline void fused_sgd(at::TensorList, at::TensorList, const TensorLists&, const FusedSgd&, double,
                      const torch::Tensor& = {}) {}
inline void fused_adagrad(at::TensorList, at::TensorList, const TensorLists&, at::TensorList,
                          const FusedAdagrad&, double) {}

#endif

namespace detail {

using OptimizerStates = std::remove_cvref_t<decltype(std::declval<torch::optim::Optimizer&>().state())>;
using OptimizerStateKey = OptimizerStates::key_type;

// Early versions of torch::optim key their state by text, later ones by address.
template <typename Key>
Key state_key(const torch::Tensor& parameter) {
  if constexpr (std::is_pointer_v<Key>) {
    return parameter.unsafeGetTensorImpl();
  } else {
    return (std::ostringstream() << parameter.unsafeGetTensorImpl()).str();
  }
}

}  // namespace detail

/// The state that a torch optimizer keeps for a parameter; null if it has none yet.
inline torch::optim::OptimizerParamState* optimizer_state(torch::optim::Optimizer& optimizer,
                                                          const torch::Tensor& parameter) {
  const auto found = optimizer.state().find(detail::state_key<detail::OptimizerStateKey>(parameter));
  return found == optimizer.state().end() ? nullptr : found->second.get();
}

/// A null `state` removes it.
inline void set_optimizer_state(torch::optim::Optimizer& optimizer, const torch::Tensor& parameter,
                                std::unique_ptr<torch::optim::OptimizerParamState> state) {
  const auto key = detail::state_key<detail::OptimizerStateKey>(parameter);
  if (state) {
    optimizer.state()[key] = std::move(state);
  } else {
    optimizer.state().erase(key);
  }
}

}  // namespace etude::inline v0::libtorch
