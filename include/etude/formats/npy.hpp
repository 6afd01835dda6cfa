#pragma once

#include <torch/types.h>

#include <filesystem>

namespace etude::inline v0 {

/// Memory-maps the array in NumPy's .npy file (`numpy.save`): pages are loaded on first access and evicted
/// when memory is short, so it may be larger than memory. The file must not be truncated while the tensor
/// lives. Writing to the tensor doesn't change the file but costs memory for each page written; a Dataset
/// made from it returns copies.
///
/// Supports formats 1 to 3 in C order, little-endian, with integers, floating-point numbers, bools or complex
/// numbers. Throws DataError with the file, the field, its value and what is allowed.
torch::Tensor load_npy(const std::filesystem::path& path);

/// Writes a file that `load_npy` and `numpy.load` can read, atomically. Throws DataError for a tensor without
/// an equivalent NumPy dtype, CheckpointError if writing fails.
void save_npy(const std::filesystem::path& path, const torch::Tensor& tensor);

}  // namespace etude::inline v0
