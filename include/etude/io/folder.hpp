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

/// A folder that is written whole or not at all, and read with every byte checked.
namespace etude {
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

/// Where a crash came while a folder was being replaced (see FolderWriter::commit), puts the old one back;
/// removes old ones whose successors are there. Only folders are touched whose place `is_ours(path)` allows,
/// and no writer may be at work on those. Returns what couldn't be done, in words; throws CheckpointError
/// where `parent` can't be read.
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

/// Writes the files of a folder beside its place, and puts it there when all of them are on the disk.
class FolderWriter {
 public:
  /// Makes `partial`, in place of what a dead writer left of it; where it can't be known whether that is
  /// dead, a folder beside it with a longer name. Throws CheckpointError where a living one is at work on it.
  /// `partial` and `target` must be on one file system.
  FolderWriter(FileSystem& files, std::filesystem::path target, std::filesystem::path partial)
      : files_(files),
        target_(without_slash(std::move(target))),
        partial_(without_slash(std::move(partial))) {
    files_.create_directories(partial_.parent_path());
    for (int attempt = 0; !make_partial(); ++attempt) {
      if (attempt == 200)
        throw CheckpointError(
            fmt::format("{} can't be written: another writer is at work on it", partial_.string()));
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  FolderWriter(const FolderWriter&) = delete;
  FolderWriter& operator=(const FolderWriter&) = delete;
  /// Removes what is not committed.
  ~FolderWriter() {
    if (!committed_) remove_partial();
  }

  /// Where other code may write files of its own; `commit` takes them in.
  const std::filesystem::path& folder() const { return partial_; }
  const std::filesystem::path& target() const { return target_; }

  /// A file of this folder, `name` a path in it ("tokenizer/vocab.json"); it must be finished before
  /// `commit`, and not outlive this.
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

  /// Writes the manifest, `facts` with the list of all files, and puts the folder in its place when all is on
  /// the disk. One that is there changes places with it and is then removed; on file systems that can't do
  /// that it is moved to ".NAME.replaced" first, and for a moment none is there.
  void commit(Manifest facts) {
    facts.files.clear();
    std::vector<std::filesystem::path> folders = {partial_};
    for (const auto& [name, type] : entries()) {
      if (type == std::filesystem::file_type::directory) {
        folders.push_back(partial_ / name);
      } else {
        facts.files.emplace(name, file_facts(name));
      }
    }
    for (const auto& [name, written] : written_) {
      if (!written.finished || !facts.files.contains(name))
        throw CheckpointError(fmt::format("{} can't be written: {} was begun, and {}", target_.string(), name,
                                          written.finished ? "is gone" : "not finished"));
    }
    const auto text = to_manifest_text(facts);
    const auto manifest = files_.create(partial_ / manifest_file);
    manifest->write(std::as_bytes(std::span(text)));
    manifest->finish();
    for (auto folder = folders.rbegin(); folder != folders.rend(); ++folder) files_.sync(*folder);
    put_in_place();
  }

 private:
  // What a file was when it was finished, to see whether somebody changed it since.
  struct Written {
    bool finished = false;
    ManifestFile facts{};
    std::filesystem::file_time_type time{};
  };

  class ChecksummedFile : public OutputFile {
   public:
    ChecksummedFile(FolderWriter& writer, std::string name, std::unique_ptr<OutputFile> file)
        : writer_(writer), name_(std::move(name)), file_(std::move(file)) {}

    void write(std::span<const std::byte> bytes) override {
      constexpr std::size_t piece_size = std::size_t{1} << 20;  // stays in the cache from one use to the next
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
                         .facts = {.size = size_, .xxh3_128 = sum_.hex()},
                         .time = std::filesystem::last_write_time(writer_.partial_ / name_, error)});
    }

   private:
    FolderWriter& writer_;
    std::string name_;
    std::unique_ptr<OutputFile> file_;
    Checksum sum_;
    std::uint64_t size_ = 0;
  };

  static std::filesystem::path without_slash(std::filesystem::path path) {
    return path.has_filename() ? path : path.parent_path();
  }

  // False if somebody else has the lock: a writer, or for a moment who looks for leftovers.
  bool make_partial() {
    {
      const detail::FolderLock leftover(partial_);
      if (leftover.state() == detail::LockState::taken) return false;
      std::error_code error;
      if (leftover.state() == detail::LockState::unknown &&
          std::filesystem::is_directory(std::filesystem::symlink_status(partial_, error))) {
        // It may be a living writer's.
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
    } catch (const std::exception&) {  // a leftover is no harm, and is removed later
    }
  }

  // Paths in the folder, a folder's before those in it.
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

  ManifestFile file_facts(const std::string& name) {
    const auto path = partial_ / name;
    std::error_code error;
    if (const auto found = written_.find(name);
        found != written_.end() && found->second.facts.size == std::filesystem::file_size(path, error) &&
        found->second.time == std::filesystem::last_write_time(path, error))
      return found->second.facts;
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
    } catch (
        const std::exception&) {  // the first error is the one to know, and recover_replaced does it later
    }
  }

  FileSystem& files_;
  std::filesystem::path target_, partial_;
  std::optional<detail::FolderLock> lock_;
  std::map<std::string, Written> written_;
  bool committed_ = false;
};

/// Reads the files of a folder that a FolderWriter wrote, each checked against the manifest when it is first
/// asked for; or, if `need_manifest` is false, of a folder that another program wrote, whose bytes are taken
/// as they are. Throws CheckpointError that names the file.
class FolderReader {
 public:
  explicit FolderReader(std::filesystem::path folder, bool need_manifest = true)
      : folder_(std::move(folder)) {
    std::error_code error;
    if (!std::filesystem::is_directory(folder_, error))
      throw CheckpointError(fmt::format("{} can't be read: it is no folder", folder_.string()));
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

  /// The bytes of a file. What is written into them stays in this mapping: the next call gives a new one.
  std::shared_ptr<MappedFile> map(const std::string& name) {
    detail::check_entry_name(name);
    if (!manifest_) return std::make_shared<MappedFile>(folder_ / name);
    const auto stated = manifest_->files.find(name);
    if (stated == manifest_->files.end())
      throw CheckpointError(
          fmt::format("{}: it isn't among the files of the manifest", (folder_ / name).string()));
    refuse_links(name);
    auto file = std::make_shared<MappedFile>(folder_ / name);
    if (file->bytes().size() != stated->second.size)
      throw CheckpointError(fmt::format("{} is damaged: it has {} bytes, and the manifest says {}",
                                        file->path().string(), file->bytes().size(), stated->second.size));
    if (!verified_.contains(name)) {
      Checksum sum;
      file->for_each_piece([&](std::span<const std::byte> piece) { sum.update(piece); });
      if (const auto hex = sum.hex(); hex != stated->second.xxh3_128)
        throw CheckpointError(fmt::format("{} is damaged: its checksum is {}, and the manifest says {}",
                                          file->path().string(), hex, stated->second.xxh3_128));
      verified_.insert(name);
    }
    return file;
  }

  /// The text of a file; it lives as long as this.
  std::string_view text(const std::string& name) {
    auto& file = texts_[name];
    if (!file) file = map(name);
    return file->text();
  }

  /// Checks every file of the manifest.
  void verify() {
    if (!manifest_) return;
    for (const auto& [name, facts] : manifest_->files) map(name);
  }

 private:
  // `commit` writes none, so somebody has put them there. In other programs' folders they are common.
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

}  // namespace etude
