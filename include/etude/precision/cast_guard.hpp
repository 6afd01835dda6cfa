#pragma once

#include <torch/types.h>

#include <utility>
#include <vector>

#include "etude/data/batch.hpp"
#include "etude/model/model.hpp"

namespace etude::inline v0 {

/// While it lives, the floating-point parameters and buffers of a model are copies of type `dtype`. The
/// originals come back, untouched, whatever happens to the copies.
class CastGuard {
 public:
  CastGuard(const Model& model, torch::ScalarType dtype);
  CastGuard(const CastGuard&) = delete;
  CastGuard& operator=(const CastGuard&) = delete;
  ~CastGuard();

 private:
  std::vector<std::pair<torch::Tensor, torch::Tensor>> originals_;  // each tensor with its own values
};

/// Casts the floating-point parameters and buffers of a model for good, and drops their gradients. Batch and
/// instance norms of LibTorch stay as they are, since they take inputs of another type, and running
/// statistics of low precision would stop following their batches.
void cast_weights(const Model& model, torch::ScalarType dtype);

/// A batch whose floating-point inputs are of type `dtype`.
Batch with_inputs_as(Batch batch, torch::ScalarType dtype);

}  // namespace etude::inline v0
