#pragma once

#include <torch/types.h>

#include <filesystem>

namespace etude {

/// The array in an IDX file, as MNIST's: of bytes a tensor over the file in memory, which is read when it is
/// first looked at (the file must not be cut short while the tensor lives; writing into the tensor doesn't
/// change it); of wider items a copy, since the file has their high byte first. Throws DataError that names
/// the file, the field, its value and what is allowed; also for a file that is still compressed.
torch::Tensor load_idx(const std::filesystem::path& path);

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/formats/impl/idx.ipp"
#endif
