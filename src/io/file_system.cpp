#include "etude/io/file_system.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "etude/base/error.hpp"
#include "etude/io/descriptor.hpp"
#include "etude/io/disk_full.hpp"

namespace etude::inline v0 {
namespace detail {

CheckpointError file_error(const std::filesystem::path& path, std::string_view what, int reason) {
  return CheckpointError(
      fmt::format("{} {}: {}", path.string(), what, std::generic_category().message(reason)));
}

namespace {

[[noreturn]] void throw_file_fault(const std::filesystem::path& path, std::string_view what, int reason) {
  throw_file_error(file_error(path, what, reason).what(), reason);
}

class PosixFile : public OutputFile {
 public:
  explicit PosixFile(std::filesystem::path path)
      : path_(std::move(path)), file_(uninterrupted([&] {
          return ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
        })) {
    if (!file_) fail(errno);
  }

  void write(std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      // Linux writes at most 2 GiB per call, macOS refuses more.
      const auto piece = bytes.first(std::min(bytes.size(), std::size_t{1} << 30));
      const auto written = uninterrupted([&] { return ::write(file_.get(), piece.data(), piece.size()); });
      if (written <= 0) fail(written < 0 ? errno : EIO);
      bytes = bytes.subspan(static_cast<std::size_t>(written));
      start_flushing(written);
    }
  }

  void finish() override {
    if (flush_to_disk(file_.get()) != 0) fail(errno);
    if (const int reason = file_.close()) fail(reason);
  }

 private:
  [[noreturn]] void fail(int reason) const { throw_file_fault(path_, "can't be written", reason); }

  // Starts writing to disk while the next bytes are prepared, so that `finish` has little to wait for.
  void start_flushing([[maybe_unused]] off_t written) {
#ifdef SYNC_FILE_RANGE_WRITE
    constexpr off_t step = 8 << 20;
    waiting_ += written;
    if (waiting_ < step) return;
    ::sync_file_range(file_.get(), flushed_, waiting_, SYNC_FILE_RANGE_WRITE);
    flushed_ += std::exchange(waiting_, 0);
#endif
  }

  std::filesystem::path path_;
  Descriptor file_;
  [[maybe_unused]] off_t flushed_ = 0, waiting_ = 0;
};

}  // namespace

}  // namespace detail

std::unique_ptr<OutputFile> FileSystem::create(const std::filesystem::path& path) {
  return std::make_unique<detail::PosixFile>(path);
}

void FileSystem::create_directories(const std::filesystem::path& path) {
  std::error_code error;
  if (path.empty() || std::filesystem::is_directory(path, error)) return;
  const auto parent = path.has_filename() ? path.parent_path() : path.parent_path().parent_path();
  create_directories(parent);
  if (::mkdir(path.c_str(), 0777) != 0 && errno != EEXIST)
    detail::throw_file_fault(path, "can't be created", errno);
  if (!std::filesystem::is_directory(path, error))
    detail::throw_file_fault(path, "can't be created", ENOTDIR);
  sync(parent);
}

void FileSystem::rename(const std::filesystem::path& from, const std::filesystem::path& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0)
    detail::throw_file_fault(from, fmt::format("can't be renamed to {}", to.string()), errno);
}

bool FileSystem::exchange([[maybe_unused]] const std::filesystem::path& a,
                          [[maybe_unused]] const std::filesystem::path& b) {
#if defined(RENAME_EXCHANGE)
  return ::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0;
#elif defined(RENAME_SWAP)
  return ::renamex_np(a.c_str(), b.c_str(), RENAME_SWAP) == 0;
#else
  return false;
#endif
}

bool FileSystem::create_hard_link(const std::filesystem::path& file, const std::filesystem::path& link) {
  return ::link(file.c_str(), link.c_str()) == 0;
}

bool FileSystem::create_symlink(const std::filesystem::path& target, const std::filesystem::path& link) {
  if (::symlink(target.c_str(), link.c_str()) == 0) return true;
  if (errno == EPERM || errno == ENOSYS || errno == ENOTSUP) return false;
  detail::throw_file_fault(link, "can't be created", errno);
}

void FileSystem::remove_all(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  if (error) detail::throw_file_fault(path, "can't be removed", error.value());
}

void FileSystem::sync(const std::filesystem::path& path) {
  const auto place = path.empty() ? std::filesystem::path(".") : path;
  const detail::Descriptor file(
      detail::uninterrupted([&] { return ::open(place.c_str(), O_RDONLY | O_CLOEXEC); }));
  if (file && detail::flush_to_disk(file.get()) == 0) return;
  const int reason = errno;
  // Some file systems can't sync folders, and a folder may be writable but not readable.
  const bool is_unable = file ? reason == EINVAL || reason == ENOTSUP : reason == EACCES;
  std::error_code error;
  if (is_unable && std::filesystem::is_directory(place, error)) return;
  detail::throw_file_fault(place, "can't be written", reason);
}

FileSystem& default_file_system() {
  static FileSystem files;
  return files;
}

namespace detail {

std::string random_name() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}", device(), device());
}

void write_atomically(FileSystem& files, const std::filesystem::path& path,
                      const std::function<void(OutputFile&)>& write) {
  const auto partial =
      path.parent_path() / fmt::format(".{}.{}.partial", path.filename().string(), random_name());
  try {
    const auto file = files.create(partial);
    write(*file);
    file->finish();
    files.rename(partial, path);
  } catch (...) {
    try {
      files.remove_all(partial);
    } catch (const CheckpointError&) {  // report the first error
    }
    throw;
  }
  files.sync(path.parent_path());
}

}  // namespace detail

void write_file(FileSystem& files, const std::filesystem::path& path, std::string_view text) {
  detail::write_atomically(files, path,
                           [&](OutputFile& file) { file.write(std::as_bytes(std::span(text))); });
}

}  // namespace etude::inline v0
