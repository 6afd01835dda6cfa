#pragma once

#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <torch/types.h>

#include <limits>
#include <vector>

namespace etude {

/// The L2 norm of all the tensors together, as a 0-dim tensor on the device of the first. Half precision is
/// summed in float32. Nothing here waits for a device.
inline torch::Tensor l2_norm(at::TensorList tensors) {
  if (tensors.empty()) return at::zeros({});
  std::vector<torch::Tensor> norms;
  for (const torch::Tensor& tensor : tensors) {
    const auto type = tensor.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    norms.push_back(at::linalg_vector_norm(tensor, 2, at::OptionalIntArrayRef{}, false, type));
  }
  if (norms.size() == 1) return norms.front();
  bool exact = false;
  for (const torch::Tensor& norm : norms) exact |= norm.scalar_type() == at::kDouble;
  for (torch::Tensor& norm : norms) {
    norm = norm.to(norms.front().device(), exact ? at::kDouble : at::kFloat, /*non_blocking=*/true);
  }
  return at::linalg_vector_norm(at::stack(norms), 2);
}

/// Scales the tensors so that their common L2 norm is at most `max_norm`, by torch's formula: the factor is
/// max_norm / (norm + 1e-6), at most 1. Returns the norm before. On the CPU nothing is written when nothing
/// has to be scaled; elsewhere the factor stays on the device, so that nothing waits for it.
inline torch::Tensor clip_norm(at::TensorList tensors, double max_norm) {
  const torch::NoGradGuard no_grad;
  torch::Tensor norm = l2_norm(tensors);
  if (max_norm == std::numeric_limits<double>::infinity()) return norm;
  const torch::Tensor factor = (max_norm / (norm + 1e-6)).clamp_max(1.0);
  if (factor.is_cpu() && factor.item<double>() == 1.0) return norm;
  for (torch::Tensor tensor : tensors) {
    tensor.mul_(factor.to(tensor.device(), factor.scalar_type(), /*non_blocking=*/true));
  }
  return norm;
}

/// Limits every element to [-limit, limit].
inline void clip_value(at::TensorList tensors, double limit) {
  const torch::NoGradGuard no_grad;
  for (torch::Tensor tensor : tensors) tensor.clamp_(-limit, limit);
}

}  // namespace etude
