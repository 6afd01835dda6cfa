#include "etude/io/copy_folder.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <set>
#include <string_view>
#include <system_error>

#include "etude/base/error.hpp"
#include "etude/io/disk_full.hpp"
#include "etude/io/file_system.hpp"
#include "etude/io/mapped_file.hpp"

namespace etude::inline v0 {
namespace detail {

namespace {

std::filesystem::path beside(const std::filesystem::path& path, std::string_view suffix) {
  return path.parent_path() / fmt::format(".{}.{}", path.filename().string(), suffix);
}

/// Throws CheckpointError if `path` exists but isn't a checkpoint, so that nothing else is ever deleted.
bool is_checkpoint(const std::filesystem::path& path) {
  std::error_code error;
  const auto status = std::filesystem::symlink_status(path, error);
  if (!std::filesystem::exists(status)) return false;
  if (std::filesystem::is_directory(status) && std::filesystem::exists(path / "trainer_state.json", error))
    return true;
  throw CheckpointError(fmt::format(
      "{} can't be replaced or removed: it isn't a checkpoint with a trainer_state.json", path.string()));
}

void copy_file(FileSystem& files, const std::filesystem::path& from, const std::filesystem::path& to) {
  std::error_code error;
  std::filesystem::create_hard_link(from, to, error);
  if (!error) return;
  const MappedFile source(from);
  const auto copy = files.create(to);
  copy->write(source.bytes());
  copy->finish();
}

}  // namespace

}  // namespace detail

void copy_checkpoint(FileSystem& files, const std::filesystem::path& from, const std::filesystem::path& to) {
  const bool replaces = detail::is_checkpoint(to);
  const auto partial = detail::beside(to, "partial");
  files.create_directories(to.parent_path());
  files.remove_all(partial);
  try {
    files.create_directories(partial);
    std::set<std::filesystem::path> folders{partial};
    for (auto entry = std::filesystem::recursive_directory_iterator(from);
         entry != std::filesystem::recursive_directory_iterator(); ++entry) {
      const auto target = partial / entry->path().lexically_relative(from);
      if (entry->is_directory()) {
        files.create_directories(target);
        folders.insert(target);
      } else {
        detail::copy_file(files, entry->path(), target);
      }
    }
    for (auto folder = folders.rbegin(); folder != folders.rend(); ++folder) files.sync(*folder);
    if (replaces && files.exchange(partial, to)) {
      files.remove_all(partial);
    } else {
      if (replaces) remove_checkpoint(files, to);
      files.rename(partial, to);
    }
    files.sync(to.parent_path());
  } catch (const std::filesystem::filesystem_error& fault) {
    const int reason = fault.code().value();
    detail::throw_file_error(detail::file_error(from, "can't be copied", reason).what(), reason);
  }
}

void remove_checkpoint(FileSystem& files, const std::filesystem::path& checkpoint) {
  if (!detail::is_checkpoint(checkpoint)) return;
  const auto deleted = detail::beside(checkpoint, "deleted");
  files.remove_all(deleted);
  files.rename(checkpoint, deleted);
  files.remove_all(deleted);
}

}  // namespace etude::inline v0
