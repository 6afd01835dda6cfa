#pragma once

#include <torch/types.h>

#include <cstddef>
#include <unordered_set>
#include <utility>
#include <vector>

#include "etude/data/batch.hpp"
#include "etude/model/model.hpp"
#include "etude/precision/cast_guard.hpp"

namespace etude::inline v0 {

ETUDE_INLINE CastGuard::CastGuard(const Model& model, torch::ScalarType dtype) {
  const torch::NoGradGuard no_grad;
  std::unordered_set<const void*> seen;  // a tied parameter has several names
  for (const auto& tensors : {model.named_parameters(), model.named_buffers()})
    for (const auto& [name, tensor] : tensors)
      if (tensor.is_floating_point() && seen.insert(tensor.unsafeGetTensorImpl()).second)
        originals_.emplace_back(tensor, tensor.variable_data());
  std::vector<torch::Tensor> copies;  // all of them first, since memory may run out
  for (const auto& [tensor, original] : originals_) copies.push_back(original.to(dtype));
  for (std::size_t i = 0; i < copies.size(); ++i) originals_[i].first.set_data(copies[i]);
}

ETUDE_INLINE CastGuard::~CastGuard() {
  for (auto& [tensor, original] : originals_) tensor.set_data(original);
}

ETUDE_INLINE Batch with_inputs_as(Batch batch, torch::ScalarType dtype) {
  batch.inputs = batch.inputs.transform(
      [dtype](const torch::Tensor& input) { return input.is_floating_point() ? input.to(dtype) : input; });
  return batch;
}

}  // namespace etude::inline v0
