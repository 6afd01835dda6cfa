#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "etude/io/descriptor.hpp"

namespace etude::inline v0::detail {

/// The columns of CodeCarbon 3.3's emissions.csv, in the file's order.
const std::vector<std::string>& emissions_columns();

using EmissionsRow = std::map<std::string, std::string, std::less<>>;

/// An emissions.csv. Every row has all columns. Rows of other runs are preserved byte for byte; at any moment
/// the file is either the old or the new one, even if the process is killed.
class EmissionsFile {
 public:
  explicit EmissionsFile(const std::filesystem::path& path);
  EmissionsFile(const EmissionsFile&) = delete;
  EmissionsFile& operator=(const EmissionsFile&) = delete;
  ~EmissionsFile();

  const std::filesystem::path& path() const { return path_; }

  /// The last row with this `run_id`; nullopt if it or the file doesn't exist.
  std::optional<EmissionsRow> row_of(std::string_view run_id) const;

  /// Replaces the last row with the same `run_id`, or appends the row. If the file has different columns,
  /// renames it to NAME.bak (NAME_0.bak, ...), as CodeCarbon does, and begins a new one. Throws Error, or a
  /// class derived from it, if it can't be written, for example because other processes keep writing to it.
  void write(const EmissionsRow& row);

 private:
  void rescue() noexcept;

  std::filesystem::path path_;
  // The most recently replaced file: a process that has it open and ignores locks may have added a row since.
  Descriptor replaced_;
  std::size_t replaced_size_ = 0;
};

}  // namespace etude::inline v0::detail
