#pragma once

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
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

// By name, so that dtypes unknown to this LibTorch aren't found.
inline std::optional<torch::ScalarType> scalar_type(const FileDtype& dtype) {
  return scalar_type_named(dtype.torch_name);
}

inline const FileDtype* safetensors_dtype(const std::string& name, const torch::Tensor& tensor) {
  if (!tensor.defined() || tensor.layout() != torch::kStrided || tensor.is_meta())
    throw safetensors_fault("tensor '{}': only dense tensors can be saved", printable(name));
  const std::string_view wanted = c10::toString(tensor.scalar_type());
  const auto* found = std::ranges::find(safetensors_dtypes, wanted, &FileDtype::torch_name);
  if (found == safetensors_dtypes.end())
    throw safetensors_fault("tensor '{}': safetensors has no dtype for {}", printable(name),
                            dtype_name(tensor.scalar_type()));
  return found;
}

inline torch::Tensor tensor_of(const SafeTensorsEntry& entry, const std::shared_ptr<MappedFile>& file,
                               std::span<std::byte> bytes) {
  const auto dtype = scalar_type(*entry.dtype);
  if (!dtype)
    throw safetensors_fault("tensor '{}': dtype: this LibTorch has no {}", printable(entry.name),
                            entry.dtype->name);
  if (dtype == torch::kBool && !are_bools(bytes))
    throw safetensors_fault("tensor '{}': a BOOL must be 0 or 1", printable(entry.name));
  return mapped_tensor(file, bytes, entry.shape, *dtype);
}

/// Writes the items of a tensor row by row. Tensors that aren't contiguous in CPU memory are copied piece by
/// piece, which avoids a second tensor of full size.
inline void write_items(OutputFile& file, const torch::Tensor& tensor) {
  constexpr std::size_t piece_size = std::size_t{16} << 20;
  if (tensor.numel() == 0) return;
  if (tensor.is_cpu() && tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg()) {
    file.write({static_cast<const std::byte*>(tensor.data_ptr()), tensor.nbytes()});
  } else if (tensor.nbytes() <= piece_size || tensor.dim() == 0) {
    write_items(file, tensor.resolve_conj().resolve_neg().contiguous().cpu());
  } else if (const auto row = tensor.nbytes() / static_cast<std::size_t>(tensor.size(0)); row > piece_size) {
    for (std::int64_t i = 0; i < tensor.size(0); ++i) write_items(file, tensor.select(0, i));
  } else {
    const auto rows = static_cast<std::int64_t>(piece_size / row);
    for (std::int64_t i = 0; i < tensor.size(0); i += rows)
      write_items(file, tensor.narrow(0, i, std::min(rows, tensor.size(0) - i)));
  }
}

}  // namespace detail

/// Loads the tensors and the metadata of a safetensors file. The tensors are views of the mapping, which they
/// keep alive; writing to them doesn't change the file, and they can't be resized. The file is fully
/// validated; throws CheckpointError with the file, the tensor and the field.
inline SafeTensors load_safetensors(const std::shared_ptr<MappedFile>& file) {
  try {
    auto header = read_safetensors_header(file->bytes());
    const auto data = file->bytes().subspan(header.data_begin);
    SafeTensors result;
    result.metadata = std::move(header.metadata);
    for (const auto& entry : header.tensors)
      result.tensors.emplace_back(
          entry.name, detail::tensor_of(entry, file, data.subspan(entry.begin, entry.end - entry.begin)));
    return result;
  } catch (const CheckpointError& error) {
    throw CheckpointError(fmt::format("{}: {}", file->path().string(), error.what()));
  }
}

inline SafeTensors load_safetensors(const std::filesystem::path& path) {
  return load_safetensors(std::make_shared<MappedFile>(path));
}

/// Writes a file that `load_safetensors` and Python's package can read. A tensor with two names is written
/// twice. Throws CheckpointError for duplicate and reserved names and for tensors that the format doesn't
/// support, before writing anything; also if writing fails.
inline void write_safetensors(OutputFile& file,
                              const std::vector<std::pair<std::string, torch::Tensor>>& tensors,
                              const std::map<std::string, std::string>& metadata = {}) {
  struct Part {
    const FileDtype* dtype;
    const std::string* name;
    const torch::Tensor* tensor;
  };
  std::vector<Part> parts;
  for (const auto& [name, tensor] : tensors)
    parts.push_back({detail::safetensors_dtype(name, tensor), &name, &tensor});
  // Wider types first, so that every tensor is aligned.
  std::ranges::sort(parts, [](const Part& a, const Part& b) {
    return a.dtype != b.dtype ? a.dtype > b.dtype : *a.name < *b.name;
  });
  std::vector<SafeTensorsEntry> entries;
  std::uint64_t offset = 0;
  for (const auto& part : parts) {
    const auto end = offset + part.tensor->nbytes();
    entries.push_back({*part.name, part.dtype, part.tensor->sizes().vec(), offset, end});
    offset = end;
  }
  const auto header = safetensors_header_bytes(entries, metadata);
  file.write(std::as_bytes(std::span(header)));
  for (const auto& part : parts) detail::write_items(file, part.tensor->detach());
}

/// Writes a safetensors file atomically: a crash leaves the old file. Throws as `write_safetensors`.
inline void save_safetensors(const std::filesystem::path& path,
                             const std::vector<std::pair<std::string, torch::Tensor>>& tensors,
                             const std::map<std::string, std::string>& metadata = {},
                             FileSystem& files = default_file_system()) {
  detail::write_atomically(files, path,
                           [&](OutputFile& file) { write_safetensors(file, tensors, metadata); });
}

}  // namespace etude::inline v0
