#pragma once

#include <torch/types.h>

#include <utility>
#include <vector>

#include "etude/data/batch.hpp"
#include "etude/model/model.hpp"

namespace etude::inline v0 {

/// Replaces the floating-point parameters and buffers of a model by copies of type `dtype` while it lives.
/// Restores the originals afterwards, unaffected by changes to the copies.
class CastGuard {
 public:
  CastGuard(const Model& model, torch::ScalarType dtype);
  CastGuard(const CastGuard&) = delete;
  CastGuard& operator=(const CastGuard&) = delete;
  ~CastGuard();

 private:
  std::vector<std::pair<torch::Tensor, torch::Tensor>> originals_;  // each tensor with its original values
};

/// Permanently casts the floating-point parameters and buffers of a model, and drops their gradients.
/// LibTorch's batch and instance norms stay as they are: they accept inputs of another type, and running
/// statistics in low precision would stop following the batches.
void cast_weights(const Model& model, torch::ScalarType dtype);

/// Returns the batch with its floating-point inputs cast to `dtype`.
Batch with_inputs_as(Batch batch, torch::ScalarType dtype);

}  // namespace etude::inline v0
