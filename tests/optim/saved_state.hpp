#pragma once

#include <torch/types.h>

#include <string>

#include "etude/optim/optimizer.hpp"

/// The state of an optimizer, by name.
namespace saved_state {

/// Undefined if there is none of that name.
inline torch::Tensor entry(const etude::NamedTensors& tensors, const std::string& name) {
  for (const auto& [key, tensor] : tensors)
    if (key == name) return tensor;
  return {};
}

inline etude::NamedTensors clones(const etude::NamedTensors& tensors) {
  etude::NamedTensors result;
  for (const auto& [name, tensor] : tensors) result.emplace_back(name, tensor.detach().clone());
  return result;
}

}  // namespace saved_state
