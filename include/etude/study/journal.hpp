#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "etude/io/descriptor.hpp"

namespace etude::inline v0::detail {

/// A file of records, one line of JSON each, that several processes append to, in the format of Optuna's
/// JournalFileBackend. A writer holds Optuna's lock, a symbolic link next to the file. If the writer dies or
/// is stopped, the lock is removed once the file hasn't changed for 30 seconds. After waiting for 10 seconds,
/// a process warns which process holds the lock.
class JournalFile {
 public:
  /// Creates the file if it doesn't exist. A read-only file can be read. Throws CheckpointError with the path
  /// and the reason if it can't be opened.
  explicit JournalFile(std::filesystem::path path);

  /// Appends records, which are on disk when it returns. An incomplete record whose writer died is
  /// overwritten with spaces; no process has acted on it. Throws DiskFullError if the disk is full, and
  /// CheckpointError for other write errors.
  void append(const std::vector<std::string>& records) {
    append_exclusively([&] { return records; });
  }

  /// Appends the records that `make` returns. No other process appends between the call of `make` and the
  /// write: if another process has removed the lock meanwhile, `make` is called again.
  void append_exclusively(const std::function<std::vector<std::string>()>& make);

  /// Returns the records appended since the last call. Throws CheckpointError, which names the line, if one
  /// isn't a JSON object, and if the file has become shorter.
  std::vector<nlohmann::ordered_json> read();

 private:
  void append_text(const Descriptor& file, std::string_view text);

  std::filesystem::path path_;
  std::uintmax_t read_bytes_ = 0;
  std::int64_t read_lines_ = 0;
};

}  // namespace etude::inline v0::detail
