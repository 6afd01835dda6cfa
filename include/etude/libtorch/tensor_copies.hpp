#pragma once

#include <torch/types.h>

#include <algorithm>
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

  /// The copy of a tensor; null if there is none.
  const torch::Tensor* find(const torch::Tensor& tensor) const {
    const auto found =
        std::ranges::find_if(copies_, [&](const auto& each) { return each.first.is_same(tensor); });
    return found == copies_.end() ? nullptr : &found->second;
  }

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
