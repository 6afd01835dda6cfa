#pragma once

#ifndef ETUDE_TORCH_FILE
#error "etude/formats/torch_archive.hpp needs a library: link etude::torch_file"
#endif

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "etude/base/error.hpp"
#include "etude/formats/pickle.hpp"
#include "etude/formats/torch_names.hpp"
#include "etude/formats/torch_state_dict.hpp"
#include "etude/formats/zip_archive.hpp"
#include "etude/io/entry_name.hpp"

namespace etude::inline v0 {

/// A file from `torch.save`: a zip archive with a pickle and the bytes of each storage.
class TorchArchive {
 public:
  /// Throws CheckpointError for any other kind of file, and names the kind if it is known.
  explicit TorchArchive(const std::filesystem::path& path);

  /// Reads from memory that must outlive it; `name` is for messages.
  TorchArchive(std::string_view bytes, std::string name) : TorchArchive(ZipArchive(bytes, std::move(name))) {}

  const std::string& name() const { return zip_.name(); }

  /// The tensors and their names as `read_torch_state_dict` returns them. Their storages have been checked:
  /// they exist, have the stated sizes, and their total size is in proportion to the size of the file.
  TorchStateDict state_dict(std::string_view key = {}) const { return read(key); }

  /// The same for all dicts in the file, with names from the root: "model.weight",
  /// "optimizer.state.0.exp_avg". An empty dict has no tensors.
  TorchStateDict all_tensors() const { return read(std::nullopt); }

  /// The size in bytes of a tensor's storage.
  std::uint64_t storage_size(std::string_view key) const { return entry_of(storage_name(key)).size; }
  void read_storage(std::string_view key, void* to) const { zip_.read(entry_of(storage_name(key)), to); }

 private:
  explicit TorchArchive(ZipArchive zip);

  /// Reads all tensors if there is no `key`.
  TorchStateDict read(std::optional<std::string_view> key) const;

  template <class... Args>
  CheckpointError fault(fmt::format_string<Args...> text, Args&&... args) const {
    return CheckpointError(fmt::format("{}: ", name()) + fmt::format(text, std::forward<Args>(args)...));
  }

  static std::string storage_name(std::string_view key) { return fmt::format("data/{}", key); }

  const ZipArchive::Entry& entry_of(std::string_view record) const;

  void check_storages(const TorchStateDict& result) const;

  ZipArchive zip_;
  std::string prefix_;
};

}  // namespace etude::inline v0
