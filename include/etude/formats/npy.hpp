#pragma once

#include <torch/types.h>

#include <filesystem>

namespace etude {

/// The array in NumPy's .npy file (`numpy.save`), without reading it: a tensor over the file in memory, whose
/// pages come when they are first looked at and go when memory is short, so it may be larger than memory.
/// The file must not be cut short while the tensor lives. Writing into the tensor doesn't change the file but
/// costs memory for each page written; a Dataset made of it copies what it gives.
///
/// Formats 1 to 3, in C order, little-endian, of whole and floating numbers, bools or complex numbers. Throws
/// DataError that names the file, the field, its value and what is allowed.
torch::Tensor load_npy(const std::filesystem::path& path);

/// Writes a file that `load_npy` and `numpy.load` read; it takes its place when it is whole. Throws DataError
/// for a tensor that NumPy has no dtype for, CheckpointError when writing fails.
void save_npy(const std::filesystem::path& path, const torch::Tensor& tensor);

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/formats/impl/npy.ipp"
#endif
