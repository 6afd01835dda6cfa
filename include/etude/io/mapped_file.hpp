#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <utility>

#include "etude/base/error.hpp"
#include "etude/io/descriptor.hpp"
#include "etude/io/file_system.hpp"

namespace etude {

/// The bytes of a file in memory, read when they are first looked at. They may be written; the file doesn't
/// change. Throws CheckpointError for what can't be read or is no regular file.
///
/// The file must not be cut short while it is mapped, which the system answers with SIGBUS: checkpoints are
/// replaced and removed as a whole, and that is safe.
class MappedFile {
 public:
  explicit MappedFile(std::filesystem::path path) : path_(std::move(path)) {
    // A pipe without a writer would let an open wait.
    const detail::Descriptor file(
        detail::uninterrupted([&] { return ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); }));
    struct stat status {};
    if (!file || ::fstat(file.get(), &status) != 0) throw fault(errno);
    if (!S_ISREG(status.st_mode))
      throw CheckpointError(fmt::format("{} can't be read: it is no regular file", path_.string()));
    size_ = static_cast<std::size_t>(status.st_size);
    if (size_ == 0) return;
    // NORESERVE: a system that counts what may be written would want this much of memory free.
    void* const bytes =
        ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file.get(), 0);
    if (bytes == MAP_FAILED) throw fault(errno);
    bytes_ = static_cast<std::byte*>(bytes);
    ::madvise(bytes_, size_, MADV_WILLNEED);
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile() {
    if (bytes_) ::munmap(bytes_, size_);
  }

  const std::filesystem::path& path() const { return path_; }
  std::span<std::byte> bytes() { return {bytes_, size_}; }
  std::span<const std::byte> bytes() const { return {bytes_, size_}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(bytes_), size_}; }

  /// Calls `visit(bytes)` for each piece of the file in order, read in larger steps than page by page. Throws
  /// CheckpointError where the disk can't give the bytes, if the system can tell.
  template <class Visit>
  void for_each_piece(Visit&& visit) const {
    for (std::size_t begin = 0; begin < size_; begin += piece_size) {
      const auto piece = bytes().subspan(begin, std::min(piece_size, size_ - begin));
#ifdef MADV_POPULATE_READ
      if (::madvise(bytes_ + begin, piece.size(), MADV_POPULATE_READ) != 0 && errno == EFAULT)
        throw fault(EIO);
#endif
      visit(piece);
    }
  }

 private:
  static constexpr std::size_t piece_size = std::size_t{4} << 20;

  CheckpointError fault(int reason) const { return detail::file_error(path_, "can't be read", reason); }

  std::filesystem::path path_;
  std::byte* bytes_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace etude
