#pragma once

#include <torch/types.h>
#include <torch/version.h>

#include <vector>

#if __has_include(<ATen/ops/_foreach_lerp.h>)
#include <ATen/ops/_foreach_lerp.h>
#define ETUDE_HAS_FOREACH_LERP 1
#else
#define ETUDE_HAS_FOREACH_LERP 0
#endif

#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/zeros.h>

/// Differences between LibTorch versions in operators on lists of tensors.
namespace etude::inline v0::libtorch {

/// Interpolates each of `tensors` linearly towards its end. One kernel launch for all of them on an
/// accelerator, since LibTorch 2.0.
inline void foreach_lerp_(const std::vector<torch::Tensor>& tensors, const std::vector<torch::Tensor>& ends,
                          double weight) {
  if (tensors.empty()) return;
#if ETUDE_HAS_FOREACH_LERP
  at::_foreach_lerp_(tensors, ends, weight);
#else
  for (std::size_t i = 0; i < tensors.size(); ++i) torch::Tensor(tensors[i]).lerp_(ends[i], weight);
#endif
}

/// Whether `_amp_foreach_non_finite_check_and_unscale_` runs on the CPU.
inline constexpr bool has_amp_on_cpu = TORCH_VERSION_MAJOR > 2 ||
                                       (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 3);

/// Multiplies tensors of one device and type. Returns float32, 0-dim, which is 0 if all elements were finite.
inline torch::Tensor multiply_and_check_(const std::vector<torch::Tensor>& tensors, double factor) {
  const auto options = tensors.front().options().dtype(torch::kFloat);
  auto found = at::zeros({}, options);
  if (has_amp_on_cpu || !tensors.front().is_cpu()) {
    at::_amp_foreach_non_finite_check_and_unscale_(tensors, found, at::full({}, factor, options));
    return found;
  }
  for (const auto& tensor : tensors) {
    found += at::isfinite(tensor).all().logical_not();
    tensor.mul_(factor);
  }
  return found;
}

}  // namespace etude::inline v0::libtorch
