#pragma once

#include <torch/types.h>

#include <cstddef>
#include <utility>
#include <vector>

namespace etude::inline v0 {

/// A copy of a tensor's values in host memory.
torch::Tensor copy_on_host(const torch::Tensor& tensor);

/// Tensors, each with a copy of its values, which `restore` writes back. Copies of this share them.
class TensorCopies {
 public:
  /// Adds a tensor with its values of now.
  void add(const torch::Tensor& tensor) { copies_.emplace_back(tensor, tensor.detach().clone()); }
  /// The same, with the copy in host memory.
  void add_on_host(const torch::Tensor& tensor) { copies_.emplace_back(tensor, copy_on_host(tensor)); }
  /// A tensor that has got another shape or type since gets back its former one.
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
