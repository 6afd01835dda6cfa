#include "etude/formats/safetensors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace etude::inline v0::detail {

const FileDtype* safetensors_dtype(const std::string& name, const torch::Tensor& tensor) {
  if (!tensor.defined() || tensor.layout() != torch::kStrided || tensor.is_meta())
    throw safetensors_fault("tensor '{}': only dense tensors can be saved", printable(name));
  const std::string_view wanted = c10::toString(tensor.scalar_type());
  const auto* found = std::ranges::find(safetensors_dtypes, wanted, &FileDtype::torch_name);
  if (found == safetensors_dtypes.end())
    throw safetensors_fault("tensor '{}': safetensors has no dtype for {}", printable(name),
                            dtype_name(tensor.scalar_type()));
  return found;
}

torch::Tensor tensor_of(const SafeTensorsEntry& entry, const std::shared_ptr<MappedFile>& file,
                        std::span<std::byte> bytes) {
  const auto dtype = scalar_type(*entry.dtype);
  if (!dtype)
    throw safetensors_fault("tensor '{}': dtype: this LibTorch has no {}", printable(entry.name),
                            entry.dtype->name);
  if (dtype == torch::kBool && !are_bools(bytes))
    throw safetensors_fault("tensor '{}': a BOOL must be 0 or 1", printable(entry.name));
  return mapped_tensor(file, bytes, entry.shape, *dtype);
}

void write_items(OutputFile& file, const torch::Tensor& tensor) {
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

}  // namespace etude::inline v0::detail

namespace etude::inline v0 {

SafeTensors load_safetensors(const std::shared_ptr<MappedFile>& file) {
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

void write_safetensors(OutputFile& file, const std::vector<std::pair<std::string, torch::Tensor>>& tensors,
                       const std::map<std::string, std::string>& metadata) {
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

void save_safetensors(const std::filesystem::path& path,
                      const std::vector<std::pair<std::string, torch::Tensor>>& tensors,
                      const std::map<std::string, std::string>& metadata, FileSystem& files) {
  detail::write_atomically(files, path,
                           [&](OutputFile& file) { write_safetensors(file, tensors, metadata); });
}

}  // namespace etude::inline v0
