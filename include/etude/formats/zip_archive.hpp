#pragma once

#ifndef ETUDE_TORCH_FILE
#error "etude/formats/zip_archive.hpp needs a library: link etude::torch_file"
#endif

#include <fmt/format.h>
#include <zip.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "etude/base/error.hpp"
#include "etude/io/entry_name.hpp"

namespace etude::inline v0 {

/// A zip archive opened for reading. Entries are stored or deflated, and their checksums are verified. All
/// functions throw a CheckpointError that begins with the archive's name.
class ZipArchive {
 public:
  struct Entry {
    std::uint64_t index, size, compressed_size;
  };

  explicit ZipArchive(const std::filesystem::path& path);

  /// Reads from memory that must outlive it; `name` is for messages.
  ZipArchive(std::string_view bytes, std::string name);

  const std::string& name() const { return name_; }
  std::uint64_t file_size() const { return file_size_; }

  /// The entries by name. Names are unique and don't lead out of the archive.
  const std::map<std::string, Entry, std::less<>>& entries() const { return entries_; }

  /// The entry of that name, or null.
  const Entry* find(std::string_view name) const;

  /// Reads an entry of this archive to `to`, which must have room for `entry.size` bytes.
  void read(const Entry& entry, void* to) const;

  std::string read(const Entry& entry) const;

  /// Writes the entries to a file, uncompressed and in their order; entries named in `replaced` get its bytes
  /// instead. The file is written atomically. Throws CheckpointError if it can't be written.
  void save(const std::filesystem::path& path, const std::map<std::string, std::string_view>& replaced) const;

 private:
  struct ErrorCode {
    zip_error_t error;
    ErrorCode() { zip_error_init(&error); }
    ErrorCode(const ErrorCode&) = delete;
    ErrorCode& operator=(const ErrorCode&) = delete;
    ~ErrorCode() { zip_error_fini(&error); }
  };
  struct Discard {
    void operator()(zip_t* archive) const { zip_discard(archive); }
  };

  CheckpointError fault(std::string_view what) const {
    return CheckpointError(fmt::format("{}: {}", name_, what));
  }
  std::string entry_fault(const Entry& entry, std::string_view what) const;

  void open(zip_source_t* source, ErrorCode& code);

  void add(std::uint64_t index, std::uint64_t& compressed);

  static bool leads_out(std::string_view name);

  std::string name_;
  std::uint64_t file_size_ = 0;
  std::unique_ptr<zip_t, Discard> archive_;
  std::map<std::string, Entry, std::less<>> entries_;
};

}  // namespace etude::inline v0
