#pragma once

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/io/mapped_file.hpp"

namespace etude::inline v0::detail {

/// The dtype with LibTorch's name ("Float"), if this LibTorch has it.
std::optional<torch::ScalarType> scalar_type_named(std::string_view name);

/// A tensor over `bytes` of a mapped file, which it keeps alive; a copy if the bytes aren't aligned for its
/// dtype. The caller has checked that dtype and shape need exactly these bytes.
torch::Tensor mapped_tensor(const std::shared_ptr<MappedFile>& file, std::span<std::byte> bytes,
                            const std::vector<std::int64_t>& shape, torch::ScalarType dtype);

/// Maps a data file into memory. Throws DataError if it can't be read.
std::shared_ptr<MappedFile> map_data(const std::filesystem::path& path);

}  // namespace etude::inline v0::detail
