#include "etude/formats/torch_archive.hpp"

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

namespace etude::inline v0 {

namespace detail {

namespace {

/// Files from before PyTorch 1.6 begin with a pickled number.
bool is_legacy_torch_file(const std::filesystem::path& path) {
  constexpr std::string_view number = "\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;
  std::array<char, 2 + number.size()> begin{};
  std::ifstream(path, std::ios::binary).read(begin.data(), begin.size());
  return begin[0] == '\x80' && std::string_view(begin.data(), begin.size()).substr(2) == number;
}

ZipArchive torch_zip(const std::filesystem::path& path) {
  if (is_legacy_torch_file(path))
    throw CheckpointError(path.string() +
                          ": it has the format used before PyTorch 1.6; load it in Python and save it again");
  return ZipArchive(path);
}

}  // namespace

}  // namespace detail

TorchArchive::TorchArchive(const std::filesystem::path& path) : TorchArchive(detail::torch_zip(path)) {}

TorchStateDict TorchArchive::read(std::optional<std::string_view> key) const {
  constexpr std::uint64_t max_pickle = std::uint64_t{1} << 28;
  const auto& entry = entry_of("data.pkl");
  // A pickle is rarely compressed, and each of its bytes may become an object of many bytes, so the limit
  // is low.
  const auto most = std::min(max_pickle, (std::uint64_t{1} << 20) + 8 * entry.compressed_size);
  if (entry.size > most)
    throw fault("its pickle of {} bytes is {} compressed", entry.size, entry.compressed_size);
  const auto bytes = zip_.read(entry);
  const auto document = pickle::unpickle(bytes, detail::torch_globals(), name());
  auto result = key ? read_torch_state_dict(document, bytes.size(), *key, name())
                    : read_all_torch_tensors(document, bytes.size(), name());
  check_storages(result);
  return result;
}

TorchArchive::TorchArchive(ZipArchive zip) : zip_(std::move(zip)) {
  for (const auto& [name, entry] : zip_.entries()) {
    const auto slash = name.find('/');
    if (slash == name.npos || name.substr(slash) != "/data.pkl") continue;
    if (!prefix_.empty()) throw fault("it has a second pickle: {}", detail::in_quotes(name));
    prefix_ = name.substr(0, slash + 1);
  }
  if (prefix_.empty()) throw fault("it is a zip archive, but torch.save didn't write it: it has no data.pkl");
  if (zip_.find(prefix_ + "constants.pkl")) {
    throw fault(
        "it is a TorchScript archive, from torch.jit.save or LibTorch's torch::save; only what Python's "
        "torch.save writes can be read");
  }
  if (const auto* order = zip_.find(prefix_ + "byteorder")) {
    if (order->size > 6 || zip_.read(*order) != "little") throw fault("byteorder: only 'little' can be read");
  }
}

const ZipArchive::Entry& TorchArchive::entry_of(std::string_view record) const {
  const auto* entry = zip_.find(fmt::format("{}{}", prefix_, record));
  return entry ? *entry : throw fault("it has no {}", detail::in_quotes(record));
}

void TorchArchive::check_storages(const TorchStateDict& result) const {
  // Expanded tensors and compressed zeros can be much larger than the file; beyond this limit the file is
  // considered an attack.
  const auto most = (std::uint64_t{1} << 26) + 64 * zip_.file_size();
  std::uint64_t storages = 0, elements = 0;
  std::set<std::string_view> seen;
  for (const auto& tensor : result.tensors) {
    const auto size = storage_size(tensor.storage);
    if (size != tensor.storage_bytes) {
      throw fault("tensor {}: its storage has {} bytes, but {} in the file", detail::in_quotes(tensor.name),
                  tensor.storage_bytes, size);
    }
    const auto bytes = tensor.bytes();
    const auto fresh = seen.insert(tensor.storage).second ? size : 0;
    if (bytes > most - elements || fresh > most - storages) {
      throw fault("tensor {}: too large for a file of {} bytes: at most {} bytes of tensors are allowed",
                  detail::in_quotes(tensor.name), zip_.file_size(), most);
    }
    elements += bytes;
    storages += fresh;
  }
}

}  // namespace etude::inline v0
