#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "etude/base/linkage.hpp"

namespace etude::inline v0::detail {

/// A file of records, a line of JSON each, that several processes append to, in the format of Optuna's
/// JournalFileBackend. A writer holds Optuna's lock, a symbolic link beside the file; the lock of a writer
/// that died is taken away if the file hasn't changed for 30 seconds.
class JournalFile {
 public:
  /// Creates the file if it doesn't exist. Throws CheckpointError with the path and the reason if it can't be
  /// opened.
  explicit JournalFile(std::filesystem::path path);

  /// Appends records, which are on disk when it returns. The rest of a record whose writer died is removed,
  /// since nobody has acted on it. Throws CheckpointError if it can't be written.
  void append(const std::vector<std::string>& records) {
    append_exclusively([&] { return records; });
  }

  /// Appends the records that `make` returns. Nobody else appends from its call on.
  void append_exclusively(const std::function<std::vector<std::string>()>& make);

  /// The records since the last call. Throws CheckpointError that names the line if one isn't a JSON object.
  std::vector<nlohmann::ordered_json> read();

 private:
  std::filesystem::path path_;
  std::uintmax_t read_bytes_ = 0;
  std::int64_t read_lines_ = 0;
};

}  // namespace etude::inline v0::detail

#ifndef ETUDE_COMPILED
#include "etude/study/impl/journal.ipp"
#endif
