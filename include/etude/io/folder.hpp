#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/base/function_ref.hpp"
#include "etude/io/checksum.hpp"
#include "etude/io/entry_name.hpp"
#include "etude/io/file_system.hpp"
#include "etude/io/folder_lock.hpp"
#include "etude/io/manifest.hpp"
#include "etude/io/mapped_file.hpp"

/// Writes folders atomically, and reads them with every byte verified.
namespace etude::inline v0 {
namespace detail {

void check_entry_name(std::string_view name);

inline std::filesystem::path replaced_path(const std::filesystem::path& target) {
  return target.parent_path() / ("." + target.filename().string() + ".replaced");
}

}  // namespace detail

/// Finishes a FolderWriter::commit that a crash interrupted: restores the old folder if the new one is
/// missing, otherwise removes the old one. Only touches folders for which `is_ours(path)` is true; no writer
/// may be active in those. Returns a description of each failure; throws CheckpointError if `parent` can't be
/// read.
template <class IsOurs>
std::vector<std::string> recover_replaced(FileSystem& files, const std::filesystem::path& parent,
                                          IsOurs&& is_ours) {
  constexpr std::string_view suffix = ".replaced";
  const auto target_of = [&](const std::filesystem::path& old) {
    const auto name = old.filename().string();
    return parent / name.substr(1, name.size() - suffix.size() - 1);
  };
  std::error_code error;
  std::vector<std::filesystem::path> found;
  for (std::filesystem::directory_iterator entry(parent, error), end; !error && entry != end;
       entry.increment(error)) {
    const auto name = entry->path().filename().string();
    std::error_code gone;
    if (name.size() > suffix.size() + 1 && name.starts_with('.') && name.ends_with(suffix) &&
        std::filesystem::is_directory(entry->symlink_status(gone)) && is_ours(target_of(entry->path())))
      found.push_back(entry->path());
  }
  if (error && error != std::errc::no_such_file_or_directory)
    throw detail::file_error(parent, "can't be read", error.value());
  std::vector<std::string> problems;
  for (const auto& old : found) try {
      const auto target = target_of(old);
      if (std::filesystem::exists(std::filesystem::symlink_status(target, error))) {
        files.remove_all(old);
      } else {
        files.rename(old, target);
      }
      files.sync(parent);
    } catch (const CheckpointError& problem) {
      problems.emplace_back(problem.what());
    }
  return problems;
}

/// Writes a folder's files to a temporary folder, and renames it into place when all are on disk.
class FolderWriter {
 public:
  /// Creates `partial`, replacing a dead writer's leftovers; if it is unknown whether that writer is dead,
  /// uses a folder with a longer name instead. Throws CheckpointError if another writer is active there.
  /// `partial` and `target` must be on one file system.
  FolderWriter(FileSystem& files, const std::filesystem::path& target, const std::filesystem::path& partial);
  FolderWriter(const FolderWriter&) = delete;
  FolderWriter& operator=(const FolderWriter&) = delete;
  /// Removes everything that wasn't committed.
  ~FolderWriter() {
    if (!committed_) remove_quietly(partial_);
  }

  /// Other code may write files here; `commit` includes them.
  const std::filesystem::path& folder() const { return partial_; }
  const std::filesystem::path& target() const { return target_; }

  /// Creates a file in this folder; `name` is a relative path ("tokenizer/vocab.json"). The file must be
  /// finished before `commit`, and must not outlive this object.
  std::unique_ptr<OutputFile> create(const std::string& name);

  void write_text(const std::string& name, std::string_view text);

  /// Creates a file with the content that `write` writes. If the folder `before`, which `manifest` describes,
  /// has a file of that name with the same checksum, the new file becomes a hard link to that one, and
  /// nothing is written. `write` may be called twice.
  void create_or_link(const std::string& name, const std::filesystem::path& before, const Manifest& manifest,
                      detail::FunctionRef<void(OutputFile&)> write);

  /// Writes the manifest (`manifest` plus the list of all files), waits until everything is on disk, and
  /// moves the folder into place. An existing target is exchanged with it and then removed. On file systems
  /// that can't exchange folders, the target is first moved to ".NAME.replaced", so for a moment it doesn't
  /// exist.
  void commit(Manifest manifest);

 private:
  // A file's state when it was finished, to detect later changes by other programs.
  struct Written {
    bool finished = false;
    ManifestFile info{};
    std::filesystem::file_time_type time{};
  };

  class ChecksummedFile;

  // Returns false if the lock is held elsewhere: by a writer, or briefly by a process looking for leftovers.
  bool make_partial();

  // Makes `name` a link to `file`. Returns false if `file` doesn't exist or can't be linked.
  bool link(const std::string& name, const std::filesystem::path& file, const ManifestFile& info);

  // Remembers a file that is on the disk.
  void note_finished(const std::string& name, const ManifestFile& info);

  void remove_quietly(const std::filesystem::path& path) noexcept;

  // Relative paths; a folder comes before its entries.
  std::map<std::string, std::filesystem::file_type> entries() const;

  ManifestFile file_info(const std::string& name);

  void put_in_place();

  FileSystem& files_;
  std::filesystem::path target_, partial_;
  std::optional<detail::FolderLock> lock_;
  std::map<std::string, Written> written_;
  bool committed_ = false;
};

/// Reads the files of a folder written by a FolderWriter, verifying each against the manifest on first
/// access. With `need_manifest` false it also reads folders written by other programs, unverified. Throws a
/// CheckpointError that names the file.
class FolderReader {
 public:
  explicit FolderReader(std::filesystem::path folder, bool need_manifest = true);

  const std::filesystem::path& folder() const { return folder_; }
  const std::optional<Manifest>& manifest() const { return manifest_; }

  bool has(const std::string& name) const;

  /// The bytes of a file. Writing to them changes only this mapping; the next call returns a new one.
  std::shared_ptr<MappedFile> map(const std::string& name);

  /// The text of a file, valid while this object lives.
  std::string_view text(const std::string& name);

  /// Verifies every file in the manifest.
  void verify();

 private:
  std::filesystem::path folder_;
  std::optional<Manifest> manifest_;
  std::set<std::string> verified_;
  std::map<std::string, std::shared_ptr<MappedFile>> texts_;
};

}  // namespace etude::inline v0
