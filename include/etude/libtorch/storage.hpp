#pragma once

#include <c10/core/Allocator.h>
#include <torch/types.h>

#include <cstddef>

namespace etude::inline v0::libtorch {

/// Gives a tensor's storage, and so that of all its views, new memory of `bytes`, whose content is
/// unspecified. With 0 bytes it has none, and must not be read.
inline void resize_storage(const torch::Tensor& tensor, std::size_t bytes) {
  auto* storage = tensor.storage().unsafeGetStorageImpl();
  auto* allocator = c10::GetAllocator(tensor.device().type());
  storage->set_data_ptr_noswap(allocator->allocate(0));  // frees the old memory first
  if (bytes > 0) storage->set_data_ptr_noswap(allocator->allocate(bytes));
  storage->set_nbytes(bytes);
}

}  // namespace etude::inline v0::libtorch
