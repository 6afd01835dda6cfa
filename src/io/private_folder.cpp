#include "etude/io/private_folder.hpp"

#include <fmt/format.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

#include "etude/base/error.hpp"
#include "etude/io/file_system.hpp"
#include "etude/io/folder_lock.hpp"

namespace etude::inline v0::detail {

namespace {

bool is_own_folder(const std::filesystem::path& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == ::geteuid();
}

/// Removes the folders that killed processes of this user left behind.
void sweep(const std::filesystem::path& parent, std::string_view prefix) {
  std::error_code error;
  for (std::filesystem::directory_iterator entry(parent, error), end; !error && entry != end;
       entry.increment(error)) {
    const auto& path = entry->path();
    if (!path.filename().native().starts_with(prefix) || !is_own_folder(path)) continue;
    try {
      remove_abandoned(default_file_system(), path);
    } catch (const CheckpointError&) {  // another process may be removing it
    }
  }
}

}  // namespace

PrivateFolder::PrivateFolder(std::string_view kind) {
  std::error_code error;
  const auto parent = std::filesystem::temp_directory_path(error);
  if (error) throw file_error("the temporary directory", "can't be used", error.value());
  const auto prefix = fmt::format("etude-{}-", kind);
  sweep(parent, prefix);
  do {  // another process may remove the folder before it is locked
    auto name = (parent / (prefix + "XXXXXX")).native();
    if (::mkdtemp(name.data()) == nullptr) throw file_error(name, "can't be created", errno);
    path_ = name;
    lock_.emplace(path_);
  } while (lock_->state() == FolderLock::State::taken || !is_own_folder(path_));
}

PrivateFolder::~PrivateFolder() {
  try {
    default_file_system().remove_all(path_);
  } catch (const CheckpointError&) {  // the next folder of this kind tries again
  }
}

}  // namespace etude::inline v0::detail
