#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/io/checksum.hpp"
#include "etude/io/entry_name.hpp"
#include "etude/io/file_system.hpp"
#include "etude/io/folder_lock.hpp"
#include "etude/io/manifest.hpp"
#include "etude/io/mapped_file.hpp"

/// Folders that are written atomically and read with every byte verified.
namespace etude::inline v0 {
namespace detail {

inline void check_entry_name(std::string_view name) {
  if (const auto fault = fault_of_entry_name(name); !fault.empty())
    throw CheckpointError(
        fmt::format("'{}' can't be the name of a file in a checkpoint: {}", printable(name), fault));
}

inline std::filesystem::path replaced_path(const std::filesystem::path& target) {
  return target.parent_path() / ("." + target.filename().string() + ".replaced");
}

}  // namespace detail

/// Completes what a crash interrupted in FolderWriter::commit: restores the old folder if the new one is
/// missing, otherwise removes it. Only touches folders for which `is_ours(path)` holds; no writer may be
/// active on those. Returns a description of each failure; throws CheckpointError if `parent` can't be read.
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
  FolderWriter(FileSystem& files, const std::filesystem::path& target, const std::filesystem::path& partial)
      : files_(files), target_(without_slash(target)), partial_(without_slash(partial)) {
    files_.create_directories(partial_.parent_path());
    for (int attempt = 0; !make_partial(); ++attempt) {
      if (attempt == 200)
        throw CheckpointError(
            fmt::format("{} can't be written: another writer is active there", partial_.string()));
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  FolderWriter(const FolderWriter&) = delete;
  FolderWriter& operator=(const FolderWriter&) = delete;
  /// Removes everything that wasn't committed.
  ~FolderWriter() {
    if (!committed_) remove_partial();
  }

  /// Other code may write files here; `commit` includes them.
  const std::filesystem::path& folder() const { return partial_; }
  const std::filesystem::path& target() const { return target_; }

  /// Creates a file in this folder; `name` is a relative path ("tokenizer/vocab.json"). The file must be
  /// finished before `commit`, and must not outlive this object.
  std::unique_ptr<OutputFile> create(const std::string& name) {
    detail::check_entry_name(name);
    const auto path = partial_ / name;
    if (path.parent_path() != partial_) files_.create_directories(path.parent_path());
    written_.insert_or_assign(name, Written{});
    return std::make_unique<ChecksummedFile>(*this, name, files_.create(path));
  }

  void write_text(const std::string& name, std::string_view text) {
    const auto file = create(name);
    file->write(std::as_bytes(std::span(text)));
    file->finish();
  }

  /// Writes the manifest (`manifest` plus the list of all files), waits until everything is on disk, and
  /// moves the folder into place. An existing target is exchanged with it and then removed; file systems that
  /// can't exchange first move it to ".NAME.replaced", so for a moment the target doesn't exist.
  void commit(Manifest manifest) {
    manifest.files.clear();
    std::vector<std::filesystem::path> folders = {partial_};
    for (const auto& [name, type] : entries()) {
      if (type == std::filesystem::file_type::directory) {
        folders.push_back(partial_ / name);
      } else {
        manifest.files.emplace(name, file_info(name));
      }
    }
    for (const auto& [name, written] : written_) {
      if (!written.finished || !manifest.files.contains(name))
        throw CheckpointError(fmt::format("{} can't be written: {} {}", target_.string(), name,
                                          written.finished ? "has disappeared" : "was not finished"));
    }
    const auto text = to_manifest_text(manifest);
    const auto file = files_.create(partial_ / manifest_file);
    file->write(std::as_bytes(std::span(text)));
    file->finish();
    for (auto folder = folders.rbegin(); folder != folders.rend(); ++folder) files_.sync(*folder);
    put_in_place();
  }

 private:
  // A file's state when it was finished, to detect later changes by others.
  struct Written {
    bool finished = false;
    ManifestFile info{};
    std::filesystem::file_time_type time{};
  };

  class ChecksummedFile : public OutputFile {
   public:
    ChecksummedFile(FolderWriter& writer, std::string name, std::unique_ptr<OutputFile> file)
        : writer_(writer), name_(std::move(name)), file_(std::move(file)) {}

    void write(std::span<const std::byte> bytes) override {
      constexpr std::size_t piece_size = std::size_t{1} << 20;  // stays in cache between uses
      while (!bytes.empty()) {
        const auto piece = bytes.first(std::min(bytes.size(), piece_size));
        sum_.update(piece);
        file_->write(piece);
        size_ += piece.size();
        bytes = bytes.subspan(piece.size());
      }
    }

    void finish() override {
      file_->finish();
      std::error_code error;
      writer_.written_.insert_or_assign(
          name_, Written{.finished = true,
                         .info = {.size = size_, .xxh3_128 = sum_.hex()},
                         .time = std::filesystem::last_write_time(writer_.partial_ / name_, error)});
    }

   private:
    FolderWriter& writer_;
    std::string name_;
    std::unique_ptr<OutputFile> file_;
    Checksum sum_;
    std::uint64_t size_ = 0;
  };

  static std::filesystem::path without_slash(const std::filesystem::path& path) {
    return path.has_filename() ? path : path.parent_path();
  }

  // False if the lock is held elsewhere: by a writer, or briefly by a process looking for leftovers.
  bool make_partial() {
    {
      const detail::FolderLock leftover(partial_);
      if (leftover.state() == detail::LockState::taken) return false;
      std::error_code error;
      if (leftover.state() == detail::LockState::unknown &&
          std::filesystem::is_directory(std::filesystem::symlink_status(partial_, error))) {
        // It may belong to a living writer.
        partial_.replace_filename(fmt::format("{}.{}{}", partial_.stem().string(), detail::random_name(),
                                              partial_.extension().string()));
      } else {
        files_.remove_all(partial_);
      }
    }
    try {
      files_.create_directories(partial_);
    } catch (...) {
      remove_partial();
      throw;
    }
    lock_.emplace(partial_);
    std::error_code error;
    return lock_->state() == detail::LockState::held ||
           (lock_->state() == detail::LockState::unknown && std::filesystem::is_directory(partial_, error));
  }

  void remove_partial() noexcept { remove_quietly(partial_); }

  void remove_quietly(const std::filesystem::path& path) noexcept {
    try {
      files_.remove_all(path);
    } catch (const std::exception&) {  // harmless: a leftover is removed later
    }
  }

  // Relative paths; a folder comes before its entries.
  std::map<std::string, std::filesystem::file_type> entries() const {
    using Iterator = std::filesystem::recursive_directory_iterator;
    std::map<std::string, std::filesystem::file_type> found;
    try {
      for (auto entry = Iterator(partial_); entry != Iterator(); ++entry) {
        const auto type = entry->symlink_status().type();
        auto name = entry->path().lexically_relative(partial_).generic_string();
        if (type != std::filesystem::file_type::regular && type != std::filesystem::file_type::directory)
          throw CheckpointError(
              fmt::format("{} can't be written: {} is neither a file nor a folder", target_.string(), name));
        if (type == std::filesystem::file_type::regular) detail::check_entry_name(name);
        found.emplace(std::move(name), type);
      }
    } catch (const std::filesystem::filesystem_error& error) {
      throw detail::file_error(partial_, "can't be read", error.code().value());
    }
    return found;
  }

  ManifestFile file_info(const std::string& name) {
    const auto path = partial_ / name;
    std::error_code error;
    if (const auto found = written_.find(name);
        found != written_.end() && found->second.info.size == std::filesystem::file_size(path, error) &&
        found->second.time == std::filesystem::last_write_time(path, error))
      return found->second.info;
    const MappedFile file(path);
    Checksum sum;
    file.for_each_piece([&](std::span<const std::byte> piece) { sum.update(piece); });
    files_.sync(path);
    return {.size = file.bytes().size(), .xxh3_128 = sum.hex()};
  }

  void put_in_place() {
    std::error_code error;
    const auto replaced = detail::replaced_path(target_);
    const bool replaces = std::filesystem::exists(std::filesystem::symlink_status(target_, error));
    auto old = partial_;
    if (!replaces || !files_.exchange(partial_, target_)) {
      old = replaced;
      if (replaces) {
        files_.remove_all(replaced);
        files_.rename(target_, replaced);
      }
      try {
        files_.rename(partial_, target_);
      } catch (...) {
        if (replaces) put_back(replaced);
        throw;
      }
    }
    committed_ = true;
    files_.sync(target_.parent_path());
    if (replaces) remove_quietly(old);
  }

  void put_back(const std::filesystem::path& replaced) noexcept {
    try {
      files_.rename(replaced, target_);
    } catch (const std::exception&) {  // report the first error; recover_replaced repeats this later
    }
  }

  FileSystem& files_;
  std::filesystem::path target_, partial_;
  std::optional<detail::FolderLock> lock_;
  std::map<std::string, Written> written_;
  bool committed_ = false;
};

/// Reads the files of a folder written by a FolderWriter, verifying each against the manifest on first
/// access. With `need_manifest` false it also reads folders written by other programs, unverified. Throws
/// CheckpointError that names the file.
class FolderReader {
 public:
  explicit FolderReader(std::filesystem::path folder, bool need_manifest = true)
      : folder_(std::move(folder)) {
    std::error_code error;
    if (!std::filesystem::is_directory(folder_, error))
      throw CheckpointError(fmt::format("{} can't be read: it isn't a folder", folder_.string()));
    if (need_manifest || std::filesystem::exists(folder_ / manifest_file, error))
      manifest_ = read_manifest(folder_);
  }

  const std::filesystem::path& folder() const { return folder_; }
  const std::optional<Manifest>& manifest() const { return manifest_; }

  bool has(const std::string& name) const {
    if (manifest_) return manifest_->files.contains(name);
    std::error_code error;
    return detail::fault_of_entry_name(name).empty() &&
           std::filesystem::is_regular_file(folder_ / name, error);
  }

  /// The bytes of a file. Writes to them stay in this mapping: the next call returns a new one.
  std::shared_ptr<MappedFile> map(const std::string& name) {
    detail::check_entry_name(name);
    if (!manifest_) return std::make_shared<MappedFile>(folder_ / name);
    const auto stated = manifest_->files.find(name);
    if (stated == manifest_->files.end())
      throw CheckpointError(fmt::format("{}: the manifest doesn't list it", (folder_ / name).string()));
    refuse_links(name);
    auto file = std::make_shared<MappedFile>(folder_ / name);
    if (file->bytes().size() != stated->second.size)
      throw CheckpointError(fmt::format("{} is damaged: it has {} bytes, but the manifest lists {}",
                                        file->path().string(), file->bytes().size(), stated->second.size));
    if (!verified_.contains(name)) {
      Checksum sum;
      file->for_each_piece([&](std::span<const std::byte> piece) { sum.update(piece); });
      if (const auto hex = sum.hex(); hex != stated->second.xxh3_128)
        throw CheckpointError(fmt::format("{} is damaged: its checksum is {}, but the manifest lists {}",
                                          file->path().string(), hex, stated->second.xxh3_128));
      verified_.insert(name);
    }
    return file;
  }

  /// The text of a file, valid while this object lives.
  std::string_view text(const std::string& name) {
    auto& file = texts_[name];
    if (!file) file = map(name);
    return file->text();
  }

  /// Verifies every file in the manifest.
  void verify() {
    if (!manifest_) return;
    for (const auto& [name, info] : manifest_->files) map(name);
  }

 private:
  // `commit` never writes links, so somebody else did. Other programs' folders often contain them.
  void refuse_links(const std::string& name) const {
    std::error_code error;
    auto path = folder_;
    for (const auto& part : std::filesystem::path(name)) {
      path /= part;
      if (std::filesystem::is_symlink(path, error))
        throw CheckpointError(fmt::format("{} can't be read: it is a symbolic link", path.string()));
    }
  }

  std::filesystem::path folder_;
  std::optional<Manifest> manifest_;
  std::set<std::string> verified_;
  std::map<std::string, std::shared_ptr<MappedFile>> texts_;
};

}  // namespace etude::inline v0
