#pragma once

#include <torch/types.h>

#include "etude/base/linkage.hpp"

namespace etude {

/// The L2 norm of all the tensors together, as a 0-dim tensor on the device of the first. Half precision is
/// summed in float32. Nothing here waits for a device.
torch::Tensor l2_norm(at::TensorList tensors);

/// What gradients of this norm, 0-dim on the CPU, are multiplied with so that it is at most `max_norm`: by
/// torch's formula max_norm / (norm + 1e-6), at most 1. NaN for a norm that is NaN.
double clip_factor(const torch::Tensor& norm, double max_norm);

/// Scales the tensors so that their common L2 norm is at most `max_norm`, by `clip_factor`. Returns the norm
/// before. On the CPU nothing is written when nothing has to be scaled; elsewhere the factor stays on the
/// device, so that nothing waits for it.
torch::Tensor clip_norm(at::TensorList tensors, double max_norm);

/// Limits every element to [-limit, limit].
void clip_value(at::TensorList tensors, double limit);

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/optim/impl/clipping.ipp"
#endif
