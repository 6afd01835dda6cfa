#include "etude/checkpoint/snapshot_buffers.hpp"

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace etude::inline v0 {

void SnapshotBuffers::copy(const std::vector<std::vector<std::pair<std::string, torch::Tensor>>*>& lists) {
  const torch::NoGradGuard no_grad;
  std::map<std::tuple<const void*, std::vector<std::int64_t>, std::vector<std::int64_t>, torch::ScalarType,
                      bool, bool>,
           torch::Tensor>
      copies;
  std::size_t next = 0;
  for (auto* list : lists)
    for (auto& [name, tensor] : *list) {
      auto& copy = copies[{tensor.data_ptr(), tensor.sizes().vec(), tensor.strides().vec(),
                           tensor.scalar_type(), tensor.is_conj(), tensor.is_neg()}];
      if (!copy.defined()) copy = copy_into(next++, tensor);
      tensor = copy;
    }
  buffers_.resize(next);
}

torch::Tensor SnapshotBuffers::copy_into(std::size_t i, const torch::Tensor& tensor) {
  if (i == buffers_.size()) buffers_.emplace_back();
  auto& buffer = buffers_[i];
  if (!buffer.defined() || buffer.sizes() != tensor.sizes() || buffer.scalar_type() != tensor.scalar_type())
    buffer = torch::empty(tensor.sizes(), tensor.options().device(torch::kCPU).requires_grad(false));
  return buffer.copy_(tensor);
}

}  // namespace etude::inline v0
