#pragma once

#include <torch/types.h>

namespace etude::inline v0 {

/// The joint L2 norm of all tensors, as a 0-dim tensor on the device of the first. Half precision is summed
/// in float32. Never waits for a device.
torch::Tensor l2_norm(at::TensorList tensors);

/// The factor that scales gradients of this norm (0-dim, on the CPU) to at most `max_norm`: torch's formula
/// max_norm / (norm + 1e-6), at most 1. NaN if the norm is NaN.
double clip_factor(const torch::Tensor& norm, double max_norm);

/// Scales the tensors by `clip_factor` so that their joint L2 norm is at most `max_norm`. Returns the norm
/// before scaling. On the CPU nothing is written if no scaling is needed; on other devices the factor stays
/// there, so that nothing waits for it.
torch::Tensor clip_norm(at::TensorList tensors, double max_norm);

/// Scales the tensors by `clip_factor` of this norm, which may be that of more tensors than these.
void scale_to_norm(at::TensorList tensors, const torch::Tensor& norm, double max_norm);

/// Multiplies the tensors, and returns a number, 0-dim, on the device of the first, that is 0 if all elements
/// were finite. Never waits for a device.
torch::Tensor multiply_and_check(at::TensorList tensors, double factor);

/// Clamps every element to [-limit, limit].
void clip_value(at::TensorList tensors, double limit);

}  // namespace etude::inline v0
