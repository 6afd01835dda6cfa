#pragma once

#include <torch/types.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace etude::inline v0 {

/// Reusable memory for repeated copies of tensors.
class SnapshotBuffers {
 public:
  /// Replaces each tensor with a copy on the CPU that is valid until the next call; names that share a tensor
  /// share its copy.
  void copy(const std::vector<std::vector<std::pair<std::string, torch::Tensor>>*>& lists);

 private:
  torch::Tensor copy_into(std::size_t i, const torch::Tensor& tensor);

  std::vector<torch::Tensor> buffers_;
};

}  // namespace etude::inline v0
