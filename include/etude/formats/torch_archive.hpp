#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "etude/base/error.hpp"
#include "etude/formats/pickle.hpp"
#include "etude/formats/torch_names.hpp"
#include "etude/formats/torch_state_dict.hpp"
#include "etude/formats/zip_archive.hpp"
#include "etude/io/file_text.hpp"

namespace etude::inline v0 {

/// A file from `torch.save`: a zip archive with a pickle and the bytes of each storage.
class TorchArchive {
 public:
  /// Throws CheckpointError for any other file, with its kind if known.
  explicit TorchArchive(const std::filesystem::path& path) : TorchArchive(opened(path)) {}

  /// Reads from memory that must outlive it; `name` is for messages.
  TorchArchive(std::string_view bytes, std::string name) : TorchArchive(ZipArchive(bytes, std::move(name))) {}

  const std::string& name() const { return zip_.name(); }

  /// The tensors and their names as `read_torch_state_dict` returns them. All their storages exist with the
  /// stated sizes, and their total is in proportion to the size of the file.
  TorchStateDict state_dict(std::string_view key = {}) const {
    return read([&](const pickle::Document& document, std::size_t bytes) {
      return read_torch_state_dict(document, bytes, key, name());
    });
  }

  /// The same for all its dicts, with names from the root: "model.weight", "optimizer.state.0.exp_avg".
  TorchStateDict all_tensors() const {
    return read([&](const pickle::Document& document, std::size_t bytes) {
      return read_all_torch_tensors(document, bytes, name());
    });
  }

  /// The size in bytes of a tensor's storage.
  std::uint64_t storage_size(std::string_view key) const { return entry_of(storage_name(key)).size; }
  void read_storage(std::string_view key, void* to) const { zip_.read(entry_of(storage_name(key)), to); }

 private:
  static constexpr std::uint64_t max_pickle = std::uint64_t{1} << 28;

  explicit TorchArchive(ZipArchive zip) : zip_(std::move(zip)) {
    for (const auto& [name, entry] : zip_.entries()) {
      const auto slash = name.find('/');
      if (slash == name.npos || name.substr(slash) != "/data.pkl") continue;
      if (!prefix_.empty()) throw fault("it has a second pickle: {}", detail::in_quotes(name));
      prefix_ = name.substr(0, slash + 1);
    }
    if (prefix_.empty())
      throw fault("it is a zip archive, but torch.save didn't write it: it has no data.pkl");
    if (zip_.find(prefix_ + "constants.pkl")) {
      throw fault(
          "it is a TorchScript archive, from torch.jit.save or LibTorch's torch::save; only what Python's "
          "torch.save writes can be read");
    }
    if (const auto* order = zip_.find(prefix_ + "byteorder")) {
      if (order->size > 6 || zip_.read(*order) != "little")
        throw fault("byteorder: only 'little' can be read");
    }
  }

  template <class Find>
  TorchStateDict read(Find&& find) const {
    const auto& entry = entry_of("data.pkl");
    // A pickle is rarely compressed, and each of its bytes may become an object of many bytes.
    const auto most = std::min(max_pickle, (std::uint64_t{1} << 20) + 8 * entry.compressed_size);
    if (entry.size > most) {
      throw fault("its pickle of {} bytes is {} compressed", entry.size, entry.compressed_size);
    }
    const auto bytes = zip_.read(entry);
    const auto globals = detail::torch_globals();
    auto result = find(pickle::unpickle(bytes, globals, name()), bytes.size());
    check_storages(result);
    return result;
  }

  static ZipArchive opened(const std::filesystem::path& path) {
    if (is_legacy(path)) {
      throw CheckpointError(
          path.string() + ": it has the format used before PyTorch 1.6; load it in Python and save it again");
    }
    return ZipArchive(path);
  }

  // Files from before PyTorch 1.6 begin with a pickled number.
  static bool is_legacy(const std::filesystem::path& path) {
    constexpr std::string_view number = "\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";
    std::error_code error;
    if (!std::filesystem::is_regular_file(path, error)) return false;
    std::array<char, 2 + number.size()> begin{};
    std::ifstream(path, std::ios::binary).read(begin.data(), begin.size());
    return begin[0] == '\x80' && std::string_view(begin.data(), begin.size()).substr(2) == number;
  }

  template <class... Args>
  CheckpointError fault(fmt::format_string<Args...> text, Args&&... args) const {
    return CheckpointError(fmt::format("{}: ", name()) + fmt::format(text, std::forward<Args>(args)...));
  }

  // The maximum size of data decoded from this many bytes of the file.
  static std::uint64_t most_of(std::uint64_t bytes, std::uint64_t at_least) { return at_least + 64 * bytes; }

  static std::string storage_name(std::string_view key) { return fmt::format("data/{}", key); }

  const ZipArchive::Entry& entry_of(std::string_view record) const {
    const auto* entry = zip_.find(fmt::format("{}{}", prefix_, record));
    return entry ? *entry : throw fault("it has no {}", detail::in_quotes(record));
  }

  void check_storages(const TorchStateDict& result) const {
    // Expanded tensors and compressed zeros can be much larger than the file; beyond this limit the file is
    // considered an attack.
    const auto most = most_of(zip_.file_size(), std::uint64_t{1} << 26);
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

  ZipArchive zip_;
  std::string prefix_;
};

}  // namespace etude::inline v0
