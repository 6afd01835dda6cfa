#pragma once

#include <filesystem>
#include <optional>
#include <string_view>

#include "etude/io/folder_lock.hpp"

namespace etude::inline v0::detail {

/// A folder in the temporary directory that only this user may enter. The destructor removes it with its
/// content. If the process is killed, the next PrivateFolder of the same kind removes it.
class PrivateFolder {
 public:
  /// Creates "etude-KIND-" followed by six random letters and digits. Throws CheckpointError with the
  /// system's reason.
  explicit PrivateFolder(std::string_view kind);
  PrivateFolder(const PrivateFolder&) = delete;
  PrivateFolder& operator=(const PrivateFolder&) = delete;
  ~PrivateFolder();

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  std::optional<FolderLock> lock_;
};

}  // namespace etude::inline v0::detail
