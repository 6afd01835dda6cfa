#pragma once

#include <torch/types.h>

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/data/tensors.hpp"
#include "etude/formats/mapped_tensor.hpp"
#include "etude/formats/safetensors_header.hpp"
#include "etude/io/file_system.hpp"
#include "etude/io/mapped_file.hpp"

namespace etude::inline v0 {

/// The content of a safetensors file: tensors in the order of their bytes, and metadata.
struct SafeTensors {
  std::vector<std::pair<std::string, torch::Tensor>> tensors;
  std::map<std::string, std::string> metadata;
};

namespace detail {

// Looks dtypes up by name, so that dtypes unknown to this LibTorch aren't found.
inline std::optional<torch::ScalarType> scalar_type(const FileDtype& dtype) {
  return scalar_type_named(dtype.torch_name);
}

const FileDtype* safetensors_dtype(const std::string& name, const torch::Tensor& tensor);

torch::Tensor tensor_of(const SafeTensorsEntry& entry, const std::shared_ptr<MappedFile>& file,
                        std::span<std::byte> bytes);

/// Writes the items of a tensor row by row. Tensors that aren't contiguous in CPU memory are copied in
/// pieces, which avoids a second tensor of full size.
void write_items(OutputFile& file, const torch::Tensor& tensor);

}  // namespace detail

/// Loads the tensors and the metadata of a safetensors file. The tensors are views of the mapping, which they
/// keep alive; writing to them doesn't change the file, and they can't be resized. The file is fully
/// validated; throws CheckpointError with the file, the tensor and the field.
SafeTensors load_safetensors(const std::shared_ptr<MappedFile>& file);

inline SafeTensors load_safetensors(const std::filesystem::path& path) {
  return load_safetensors(std::make_shared<MappedFile>(path));
}

/// Writes a file that `load_safetensors` and Python's package can read. A tensor with two names is written
/// twice. Throws CheckpointError before writing anything for duplicate and reserved names and for tensors
/// that the format doesn't support, and if writing fails.
void write_safetensors(OutputFile& file, const std::vector<std::pair<std::string, torch::Tensor>>& tensors,
                       const std::map<std::string, std::string>& metadata = {});

/// Writes a safetensors file atomically: a crash leaves the old file. Throws as `write_safetensors` does.
void save_safetensors(const std::filesystem::path& path,
                      const std::vector<std::pair<std::string, torch::Tensor>>& tensors,
                      const std::map<std::string, std::string>& metadata = {},
                      FileSystem& files = default_file_system());

}  // namespace etude::inline v0
