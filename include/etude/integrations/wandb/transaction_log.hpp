#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "etude/integrations/shared/append_file.hpp"

namespace etude::inline v0::detail {

/// Frames a record for `offset` in Weights & Biases' transaction log: LevelDB's log format, with blocks of 32
/// KiB counted from the file's first byte, but with a plain CRC-32.
std::string wandb_framed(std::string_view record, std::int64_t offset);

/// The file run-ID.wandb. A record of any size is written by one system call, so a killed process leaves
/// complete records.
class WandbLog {
 public:
  /// Throws ArgumentError if the file can't be created or already exists: after an incomplete record, readers
  /// skip to the next block.
  explicit WandbLog(const std::filesystem::path& path);

  /// Returns false, and loses the record, if the disk is full.
  bool append(std::string_view record) noexcept;

  void sync() noexcept { file_.sync(); }
  std::int64_t lost() const { return file_.lost(); }
  int error() const { return file_.error(); }

 private:
  AppendFile file_;
};

}  // namespace etude::inline v0::detail
