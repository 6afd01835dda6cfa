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

namespace etude {

/// What a file of PyTorch holds: tensors in its order, and the names, fit to print, of what was passed over
/// because it is no tensor (an epoch, a learning rate).
struct TorchFile {
  std::vector<std::pair<std::string, torch::Tensor>> tensors;
  std::vector<std::string> skipped;
};

namespace detail {

static_assert(std::endian::native == std::endian::little, "the files that are read are little-endian");

inline torch::ScalarType torch_dtype(const TorchTensorRecord& record, std::string_view file) {
  for (int i = 0; i < static_cast<int>(torch::ScalarType::NumOptions); ++i) {
    const auto dtype = static_cast<torch::ScalarType>(i);
    if (c10::toString(dtype) == record.dtype) return dtype;
  }
  throw CheckpointError(fmt::format("{}: tensor {}: dtype: this LibTorch has no {}", file,
                                    in_quotes(record.name), record.dtype));
}

}  // namespace detail

/// Reads the tensors of a file that Python's `torch.save` wrote (PyTorch 1.6 and later), into memory of the
/// CPU. Nothing in it is executed, and nothing is believed before it is checked. Tensors that share memory in
/// Python share it here; parameters come without their gradients' flags. Dicts, lists and tuples within one
/// another give names with dots. `key` chooses a dict of the file ("state_dict", "ema.model"); without it,
/// tensors at the top are what is wanted, or else the only entry that holds tensors. Throws CheckpointError
/// that names the file and what is wrong: with several entries that hold tensors, it lists their keys.
inline TorchFile load_torch_file(const std::filesystem::path& path, std::string_view key = {}) {
  const TorchArchive archive(path);
  auto state_dict = archive.state_dict(key);
  TorchFile result;
  result.skipped = std::move(state_dict.skipped);
  std::map<std::string, torch::Tensor> storages;
  std::set<std::string> bools;  // the storages that are known to be
  for (const auto& record : state_dict.tensors) {
    const auto dtype = detail::torch_dtype(record, archive.name());
    auto [storage, is_new] = storages.try_emplace(record.storage);
    auto& bytes = storage->second;
    if (is_new) {
      bytes =
          at::empty({static_cast<std::int64_t>(record.storage_bytes)}, at::TensorOptions().dtype(at::kByte));
      archive.read_storage(record.storage, bytes.data_ptr());
    }
    if (dtype == torch::kBool && bools.insert(record.storage).second) {
      const auto* begin = static_cast<const std::byte*>(bytes.data_ptr());
      if (!detail::are_bools({begin, record.storage_bytes})) {
        throw CheckpointError(fmt::format("{}: tensor {}: a bool must be 0 or 1", archive.name(),
                                          detail::in_quotes(record.name)));
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

}  // namespace etude
