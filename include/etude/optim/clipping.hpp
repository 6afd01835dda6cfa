#pragma once

#include <torch/types.h>

namespace etude::inline v0 {

/// The L2 norm of all tensors together, as a 0-dim tensor on the first one's device. Half-precision tensors
/// are summed in float32. Never waits for a device.
torch::Tensor l2_norm(at::TensorList tensors);

/// The factor that scales gradients with this norm (0-dim, on the CPU) to at most `max_norm`, by torch's
/// formula: max_norm / (norm + 1e-6), but at most 1. NaN if the norm is NaN.
double clip_factor(const torch::Tensor& norm, double max_norm);

/// Scales the tensors by `clip_factor` so that their joint L2 norm is at most `max_norm`. Returns the norm
/// before scaling. On the CPU, nothing is written if no scaling is needed. On other devices, the factor stays
/// on the device, so that nothing waits for it.
torch::Tensor clip_norm(at::TensorList tensors, double max_norm);

/// Scales the tensors by `clip_factor` of this norm, which may include other tensors.
void scale_to_norm(at::TensorList tensors, const torch::Tensor& norm, double max_norm);

/// Multiplies the tensors by `factor`. Returns a 0-dim tensor on one of their devices that is 0 if all
/// elements were finite. Never waits for a device.
torch::Tensor multiply_and_check(at::TensorList tensors, double factor);

/// Clamps every element to [-limit, limit].
void clip_value(at::TensorList tensors, double limit);

}  // namespace etude::inline v0
