#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "etude/data/tensors.hpp"

namespace etude::inline v0 {

/// The tensors with these names in a safetensors file, or all of them if `names` is empty, memory-mapped like
/// the array of `load_npy`, so a Dataset made from them may be larger than memory. Throws DataError for a
/// missing name, CheckpointError for a file that can't be read.
Tensors stored_tensors(const std::filesystem::path& path, const std::vector<std::string>& names = {});

}  // namespace etude::inline v0
