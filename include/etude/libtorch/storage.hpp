#pragma once

#include <c10/core/Allocator.h>
#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace etude::inline v0::libtorch {

/// Gives a tensor's storage, which all its views share, new memory of `bytes` with unspecified content. With
/// 0 bytes, the storage has no memory and must not be read.
void resize_storage(const torch::Tensor& tensor, std::size_t bytes);

/// The memory of these tensors in bytes: a storage that several tensors share counts once, and as a whole.
std::int64_t storage_bytes(const std::vector<torch::Tensor>& tensors);

}  // namespace etude::inline v0::libtorch
