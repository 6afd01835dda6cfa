#include "etude/io/folder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace etude::inline v0::detail {

void check_entry_name(std::string_view name) {
  if (const auto fault = fault_of_entry_name(name); !fault.empty())
    throw CheckpointError(
        fmt::format("'{}' can't be the name of a file in a checkpoint: {}", printable(name), fault));
}

/// Counts the bytes that it passes on to `file`, if there is one, and computes their checksum.
class MeasuredFile : public OutputFile {
 public:
  explicit MeasuredFile(std::unique_ptr<OutputFile> file = nullptr) : file_(std::move(file)) {}

  void write(std::span<const std::byte> bytes) override {
    constexpr std::size_t piece_size = std::size_t{1} << 20;  // stays in cache between uses
    for (; !bytes.empty(); bytes = bytes.subspan(std::min(bytes.size(), piece_size))) {
      const auto piece = bytes.first(std::min(bytes.size(), piece_size));
      sum_.update(piece);
      if (file_) file_->write(piece);
      size_ += piece.size();
    }
  }
  void finish() override {
    if (file_) file_->finish();
  }
  ManifestFile info() const { return {.size = size_, .xxh3_128 = sum_.hex()}; }

 private:
  std::unique_ptr<OutputFile> file_;
  Checksum sum_;
  std::uint64_t size_ = 0;
};

namespace {

std::filesystem::path without_slash(const std::filesystem::path& path) {
  return path.has_filename() ? path : path.parent_path();
}

ManifestFile info_of(const MappedFile& file) {
  MeasuredFile measured;
  file.for_each_piece([&](std::span<const std::byte> piece) { measured.write(piece); });
  return measured.info();
}

/// `commit` never writes links, so a link means that the folder was changed. Other programs' folders often
/// contain links.
void refuse_links(std::filesystem::path path, const std::string& name) {
  std::error_code error;
  for (const auto& part : std::filesystem::path(name)) {
    path /= part;
    if (std::filesystem::is_symlink(path, error))
      throw CheckpointError(fmt::format("{} can't be read: it is a symbolic link", path.string()));
  }
}

}  // namespace

}  // namespace etude::inline v0::detail

namespace etude::inline v0 {

class FolderWriter::ChecksummedFile : public detail::MeasuredFile {
 public:
  ChecksummedFile(FolderWriter& writer, std::string name, std::unique_ptr<OutputFile> file)
      : MeasuredFile(std::move(file)), writer_(writer), name_(std::move(name)) {}

  void finish() override {
    MeasuredFile::finish();
    writer_.note_finished(name_, info());
  }

 private:
  FolderWriter& writer_;
  std::string name_;
};

FolderWriter::FolderWriter(FileSystem& files, const std::filesystem::path& target,
                           const std::filesystem::path& partial)
    : files_(files), target_(detail::without_slash(target)), partial_(detail::without_slash(partial)) {
  files_.create_directories(partial_.parent_path());
  for (int attempt = 0; !make_partial(); ++attempt) {
    if (attempt == 200)
      throw CheckpointError(
          fmt::format("{} can't be written: another writer is active there", partial_.string()));
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

std::unique_ptr<OutputFile> FolderWriter::create(const std::string& name) {
  detail::check_entry_name(name);
  const auto path = partial_ / name;
  if (path.parent_path() != partial_) files_.create_directories(path.parent_path());
  written_.insert_or_assign(name, Written{});
  return std::make_unique<ChecksummedFile>(*this, name, files_.create(path));
}

void FolderWriter::write_text(const std::string& name, std::string_view text) {
  const auto file = create(name);
  file->write(std::as_bytes(std::span(text)));
  file->finish();
}

void FolderWriter::create_or_link(const std::string& name, const std::filesystem::path& before,
                                  const Manifest& manifest, detail::FunctionRef<void(OutputFile&)> write) {
  if (const auto known = manifest.files.find(name); known != manifest.files.end()) {
    detail::MeasuredFile measured;
    write(measured);
    if (measured.info() == known->second && link(name, before / name, known->second)) return;
  }
  const auto file = create(name);
  write(*file);
  file->finish();
}

bool FolderWriter::link(const std::string& name, const std::filesystem::path& file,
                        const ManifestFile& info) {
  detail::check_entry_name(name);
  std::error_code error;
  if (std::filesystem::symlink_status(file, error).type() != std::filesystem::file_type::regular ||
      std::filesystem::file_size(file, error) != info.size)
    return false;
  const auto path = partial_ / name;
  if (path.parent_path() != partial_) files_.create_directories(path.parent_path());
  if (!files_.create_hard_link(file, path)) return false;
  note_finished(name, info);
  return true;
}

void FolderWriter::note_finished(const std::string& name, const ManifestFile& info) {
  std::error_code error;
  written_.insert_or_assign(name, Written{.finished = true,
                                          .info = info,
                                          .time = std::filesystem::last_write_time(partial_ / name, error)});
}

void FolderWriter::commit(Manifest manifest) {
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

bool FolderWriter::make_partial() {
  {
    const detail::FolderLock leftover(partial_);
    if (leftover.state() == detail::LockState::taken) return false;
    std::error_code error;
    if (leftover.state() == detail::LockState::unknown &&
        std::filesystem::is_directory(std::filesystem::symlink_status(partial_, error))) {
      // The existing folder may belong to a live writer.
      partial_.replace_filename(fmt::format("{}.{}{}", partial_.stem().string(), detail::random_name(),
                                            partial_.extension().string()));
    } else {
      files_.remove_all(partial_);
    }
  }
  try {
    files_.create_directories(partial_);
  } catch (...) {
    remove_quietly(partial_);
    throw;
  }
  lock_.emplace(partial_);
  std::error_code error;
  return lock_->state() == detail::LockState::held ||
         (lock_->state() == detail::LockState::unknown && std::filesystem::is_directory(partial_, error));
}

void FolderWriter::remove_quietly(const std::filesystem::path& path) noexcept {
  try {
    files_.remove_all(path);
  } catch (const std::exception&) {  // harmless: leftovers are removed later
  }
}

std::map<std::string, std::filesystem::file_type> FolderWriter::entries() const {
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

ManifestFile FolderWriter::file_info(const std::string& name) {
  const auto path = partial_ / name;
  std::error_code error;
  if (const auto found = written_.find(name);
      found != written_.end() && found->second.info.size == std::filesystem::file_size(path, error) &&
      found->second.time == std::filesystem::last_write_time(path, error))
    return found->second.info;
  const MappedFile file(path);
  auto info = detail::info_of(file);
  files_.sync(path);
  return info;
}

void FolderWriter::put_in_place() {
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
      try {
        if (replaces) files_.rename(replaced, target_);
      } catch (const std::exception&) {  // report the first error; recover_replaced repeats this later
      }
      throw;
    }
  }
  committed_ = true;
  files_.sync(target_.parent_path());
  if (replaces) remove_quietly(old);
}

FolderReader::FolderReader(std::filesystem::path folder, bool need_manifest) : folder_(std::move(folder)) {
  std::error_code error;
  if (!std::filesystem::is_directory(folder_, error))
    throw CheckpointError(fmt::format("{} can't be read: it isn't a folder", folder_.string()));
  if (need_manifest || std::filesystem::exists(folder_ / manifest_file, error))
    manifest_ = read_manifest(folder_);
}

bool FolderReader::has(const std::string& name) const {
  if (manifest_) return manifest_->files.contains(name);
  std::error_code error;
  return detail::fault_of_entry_name(name).empty() && std::filesystem::is_regular_file(folder_ / name, error);
}

std::shared_ptr<MappedFile> FolderReader::map(const std::string& name) {
  detail::check_entry_name(name);
  if (!manifest_) return std::make_shared<MappedFile>(folder_ / name);
  const auto stated = manifest_->files.find(name);
  if (stated == manifest_->files.end())
    throw CheckpointError(fmt::format("{}: the manifest doesn't list it", (folder_ / name).string()));
  detail::refuse_links(folder_, name);
  auto file = std::make_shared<MappedFile>(folder_ / name);
  if (file->bytes().size() != stated->second.size)
    throw CheckpointError(fmt::format("{} is damaged: it has {} bytes, but the manifest lists {}",
                                      file->path().string(), file->bytes().size(), stated->second.size));
  if (!verified_.contains(name)) {
    if (const auto hex = detail::info_of(*file).xxh3_128; hex != stated->second.xxh3_128)
      throw CheckpointError(fmt::format("{} is damaged: its checksum is {}, but the manifest lists {}",
                                        file->path().string(), hex, stated->second.xxh3_128));
    verified_.insert(name);
  }
  return file;
}

std::string_view FolderReader::text(const std::string& name) {
  auto& file = texts_[name];
  if (!file) file = map(name);
  return file->text();
}

void FolderReader::verify() {
  if (!manifest_) return;
  for (const auto& [name, info] : manifest_->files) map(name);
}

}  // namespace etude::inline v0
