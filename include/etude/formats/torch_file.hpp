#pragma once

#include <ATen/ops/_conj.h>
#include <ATen/ops/_neg_view.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <torch/types.h>

#include <bit>
#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/formats/safetensors_header.hpp"
#include "etude/formats/torch_archive.hpp"
#include "etude/io/file_text.hpp"

namespace etude::inline v0 {

/// The content of a PyTorch file: tensors in file order, and the printable names of skipped entries that
/// aren't tensors (an epoch, a learning rate).
struct TorchFile {
  std::vector<std::pair<std::string, torch::Tensor>> tensors;
  std::vector<std::string> skipped;
};

namespace detail {

static_assert(std::endian::native == std::endian::little, "only little-endian files are supported");

inline torch::ScalarType torch_dtype(const TorchTensorRecord& record, std::string_view file) {
  for (int i = 0; i < static_cast<int>(torch::ScalarType::NumOptions); ++i) {
    const auto dtype = static_cast<torch::ScalarType>(i);
    if (c10::toString(dtype) == record.dtype) return dtype;
  }
  throw CheckpointError(fmt::format("{}: tensor {}: dtype: this LibTorch has no {}", file,
                                    in_quotes(record.name), record.dtype));
}

/// Loads the tensors that an archive's `state_dict` describes.
inline TorchFile load_described(const TorchArchive& archive, TorchStateDict state_dict) {
  TorchFile result;
  result.skipped = std::move(state_dict.skipped);
  std::map<std::string, torch::Tensor> storages;
  std::set<std::string> bools;  // storages already validated
  for (const auto& record : state_dict.tensors) {
    const auto dtype = torch_dtype(record, archive.name());
    auto [storage, is_new] = storages.try_emplace(record.storage);
    auto& bytes = storage->second;
    if (is_new) {
      bytes =
          at::empty({static_cast<std::int64_t>(record.storage_bytes)}, at::TensorOptions().dtype(at::kByte));
      archive.read_storage(record.storage, bytes.data_ptr());
    }
    if (dtype == torch::kBool && bools.insert(record.storage).second) {
      const auto* begin = static_cast<const std::byte*>(bytes.data_ptr());
      if (!are_bools({begin, record.storage_bytes})) {
        throw CheckpointError(
            fmt::format("{}: tensor {}: a bool must be 0 or 1", archive.name(), in_quotes(record.name)));
      }
    }
    auto tensor = at::empty({0}, at::TensorOptions().dtype(dtype));
    tensor.set_(bytes.storage(), record.offset, record.sizes, record.strides);
    if (record.conjugate) tensor = at::_conj(tensor);
    if (record.negative) tensor = at::_neg_view(tensor);
    result.tensors.emplace_back(record.name, std::move(tensor));
  }
  return result;
}

}  // namespace detail

/// `load_torch_file` for an archive that is open.
inline TorchFile load_torch_archive(const TorchArchive& archive, std::string_view key = {}) {
  return detail::load_described(archive, archive.state_dict(key));
}

/// Loads the tensors of a file written by Python's `torch.save` (PyTorch 1.6 and later) into CPU memory.
/// Nothing in it is executed, and everything is validated. Tensors that share memory in Python share it here;
/// requires_grad isn't restored. Nested dicts, lists and tuples give dotted names. `key` selects a dict in
/// the file ("state_dict", "ema.model"); without it, the top-level tensors are loaded, or else those of the
/// only entry with tensors. Throws CheckpointError with the file and the problem; if several entries have
/// tensors, it lists their keys.
inline TorchFile load_torch_file(const std::filesystem::path& path, std::string_view key = {}) {
  return load_torch_archive(TorchArchive(path), key);
}

}  // namespace etude::inline v0
