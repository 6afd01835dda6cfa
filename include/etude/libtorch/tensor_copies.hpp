#pragma once

#include <torch/types.h>

#include <cstddef>
#include <utility>
#include <vector>

namespace etude::inline v0 {

/// Tensors, each with a copy of its values, which `restore` writes back. Copies of this object share the
/// tensors.
class TensorCopies {
 public:
  /// Adds a tensor with its current values.
  void add(const torch::Tensor& tensor) { copies_.emplace_back(tensor, tensor.detach().clone()); }
  /// Adds a tensor with values that were copied before, perhaps to another device.
  void add(const torch::Tensor& tensor, torch::Tensor copy) { copies_.emplace_back(tensor, std::move(copy)); }
  /// Writes the values back. A tensor whose shape or dtype has changed gets its former shape and dtype back.
  void restore() const;

  bool empty() const { return copies_.empty(); }
  std::size_t size() const { return copies_.size(); }
  void clear() { copies_.clear(); }

  /// Pairs of a tensor and its copy.
  auto begin() const { return copies_.begin(); }
  auto end() const { return copies_.end(); }

 private:
  std::vector<std::pair<torch::Tensor, torch::Tensor>> copies_;
};

}  // namespace etude::inline v0
