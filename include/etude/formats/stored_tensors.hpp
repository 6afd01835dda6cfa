#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "etude/data/tensors.hpp"

namespace etude {

/// The tensors of these names in a safetensors file, or all, over the file in memory as `load_npy` has them:
/// what a Dataset can be made of, though it be larger than memory. Throws DataError for a name that isn't
/// there, CheckpointError for a file that can't be read.
Tensors stored_tensors(const std::filesystem::path& path, const std::vector<std::string>& names = {});

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/formats/impl/stored_tensors.ipp"
#endif
