#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "etude/integrations/shared/append_file.hpp"

namespace etude::detail {

/// A record as Weights & Biases' transaction log has it at `offset` of its file: LevelDB's log format, in
/// blocks of 32 KiB that count from the file's first byte, with a plain CRC-32 (which LevelDB's isn't).
std::string wandb_framed(std::string_view record, std::int64_t offset);

/// The file run-ID.wandb. A record of any size is written by one call to the system, so a process that is
/// killed leaves whole records.
class WandbLog {
 public:
  /// Throws ArgumentError where the file can't be made or is there already: behind a record that was cut
  /// short, readers skip to the next block.
  explicit WandbLog(const std::filesystem::path& path);

  /// False, and the record is lost, if the disk is full.
  bool append(std::string_view record) noexcept;

  void sync() noexcept { file_.sync(); }
  std::int64_t lost() const { return file_.lost(); }
  int error() const { return file_.error(); }

 private:
  AppendFile file_;
};

}  // namespace etude::detail

#ifndef ETUDE_COMPILED
#include "etude/integrations/wandb/impl/transaction_log.ipp"
#endif
