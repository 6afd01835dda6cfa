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

/// A file of records, a line of JSON each, that several processes append to, in the format of Optuna's
/// JournalFileBackend. A writer holds Optuna's lock, a symbolic link beside the file; the lock of a writer
/// that died or was stopped is taken away if the file hasn't changed for 30 seconds. After 10 seconds, who
/// has the lock is reported as a warning.
class JournalFile {
 public:
  /// Creates the file if it doesn't exist. One that may not be written can be read. Throws CheckpointError
  /// with the path and the reason if it can't be opened.
  explicit JournalFile(std::filesystem::path path);

  /// Appends records, which are on disk when it returns. The rest of a record whose writer died is
  /// overwritten with spaces, since nobody has acted on it. Throws DiskFullError without room, and
  /// CheckpointError if it can't be written otherwise.
  void append(const std::vector<std::string>& records) {
    append_exclusively([&] { return records; });
  }

  /// Appends the records that `make` returns. Nobody else appends from its call on: if another process has
  /// taken the lock away meanwhile, `make` is called again.
  void append_exclusively(const std::function<std::vector<std::string>()>& make);

  /// The records since the last call. Throws CheckpointError that names the line if one isn't a JSON object,
  /// and if the file has become shorter.
  std::vector<nlohmann::ordered_json> read();

 private:
  void append_text(const Descriptor& file, std::string_view text);

  std::filesystem::path path_;
  std::uintmax_t read_bytes_ = 0;
  std::int64_t read_lines_ = 0;
};

}  // namespace etude::inline v0::detail
