#include "etude/formats/torch_file.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "etude/formats/mapped_tensor.hpp"

namespace etude::inline v0::detail {

TorchFile load_described(const TorchArchive& archive, TorchStateDict state_dict) {
  TorchFile result;
  result.skipped = std::move(state_dict.skipped);
  std::map<std::string, torch::Tensor> storages;
  std::set<std::string> bools;  // storages already validated
  for (const auto& record : state_dict.tensors) {
    const auto dtype = scalar_type_named(record.dtype);
    if (!dtype)
      throw CheckpointError(fmt::format("{}: tensor {}: dtype: this LibTorch has no {}", archive.name(),
                                        in_quotes(record.name), record.dtype));
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
    auto tensor = at::empty({0}, at::TensorOptions().dtype(*dtype));
    tensor.set_(bytes.storage(), record.offset, record.sizes, record.strides);
    if (record.conjugate) tensor = at::_conj(tensor);
    if (record.negative) tensor = at::_neg_view(tensor);
    result.tensors.emplace_back(record.name, std::move(tensor));
  }
  return result;
}

}  // namespace etude::inline v0::detail
