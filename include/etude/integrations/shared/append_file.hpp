#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

#include "etude/io/descriptor.hpp"

namespace etude::inline v0::detail {

/// A file of records, each written by one system call: appended records are complete even if the process is
/// killed. A record that can't be written, for example because the disk is full, is lost and counted, and
/// leaves nothing behind.
class AppendFile {
 public:
  AppendFile() = default;
  /// A new file; `mode` 0600 lets only its owner read it. Throws ArgumentError if it can't be created or
  /// already exists.
  AppendFile(const std::filesystem::path& path, unsigned mode);
  AppendFile(AppendFile&&) = default;
  AppendFile& operator=(AppendFile&&) = default;

  bool append(std::string_view record) noexcept;

  /// Empties the file.
  bool clear() noexcept;

  /// Waits until the appended records are on the disk.
  void sync() noexcept;

  explicit operator bool() const { return static_cast<bool>(file_); }
  std::int64_t size() const { return size_; }
  std::int64_t written() const { return written_; }  ///< Records.
  std::int64_t lost() const { return lost_; }        ///< Records.
  int error() const { return error_; }               ///< The errno of the last loss.

 private:
  Descriptor file_;
  std::int64_t size_ = 0, written_ = 0, lost_ = 0;
  int error_ = 0;
};

}  // namespace etude::inline v0::detail
