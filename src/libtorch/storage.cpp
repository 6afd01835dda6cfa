#include "etude/libtorch/storage.hpp"

#include <cstddef>
#include <cstdint>
#include <unordered_set>
#include <vector>

namespace etude::inline v0::libtorch {

void resize_storage(const torch::Tensor& tensor, std::size_t bytes) {
  auto* storage = tensor.storage().unsafeGetStorageImpl();
  auto* allocator = c10::GetAllocator(tensor.device().type());
  storage->set_data_ptr_noswap(allocator->allocate(0));  // frees the old memory first
  if (bytes > 0) storage->set_data_ptr_noswap(allocator->allocate(bytes));
  storage->set_nbytes(bytes);
}

std::int64_t storage_bytes(const std::vector<torch::Tensor>& tensors) {
  std::unordered_set<const void*> seen;
  std::int64_t bytes = 0;
  for (const auto& tensor : tensors)
    if (tensor.defined() && tensor.layout() == at::kStrided &&
        seen.insert(tensor.storage().unsafeGetStorageImpl()).second)
      bytes += static_cast<std::int64_t>(tensor.storage().nbytes());
  return bytes;
}

}  // namespace etude::inline v0::libtorch
