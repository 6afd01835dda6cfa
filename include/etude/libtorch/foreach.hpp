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

/// Hides differences in operators on lists of tensors between LibTorch versions.
namespace etude::inline v0::libtorch {

/// Interpolates each of `tensors` linearly towards its end. Since LibTorch 2.0, this is one kernel launch on
/// an accelerator.
void foreach_lerp_(const std::vector<torch::Tensor>& tensors, const std::vector<torch::Tensor>& ends,
                   double weight);

/// Multiplies each of `tensors` by a 0-dim tensor on the same device, in place. Since LibTorch 2.2, this is
/// one kernel launch on an accelerator.
void foreach_mul_(const std::vector<torch::Tensor>& tensors, const torch::Tensor& factor);

/// Whether `_amp_foreach_non_finite_check_and_unscale_` runs on the CPU.
inline constexpr bool has_amp_on_cpu = TORCH_VERSION_MAJOR > 2 ||
                                       (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 3);

/// Multiplies tensors of one device and dtype, in place. Returns a 0-dim float32 tensor, which is 0 if all
/// elements were finite.
torch::Tensor multiply_and_check_(const std::vector<torch::Tensor>& tensors, double factor);

}  // namespace etude::inline v0::libtorch
