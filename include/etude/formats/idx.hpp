#pragma once

#include <torch/types.h>

#include <filesystem>

namespace etude::inline v0 {

/// Loads the array in an IDX file, such as MNIST's. Byte arrays are memory-mapped and read on first access
/// (the file must not be truncated while the tensor lives; writing to the tensor doesn't change it); arrays
/// of wider items are copies, since the file is big-endian. Throws DataError with the file, the field, its
/// value and what is allowed, including for a file that is still compressed.
torch::Tensor load_idx(const std::filesystem::path& path);

}  // namespace etude::inline v0
