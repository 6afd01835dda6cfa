#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

#include "etude/base/error.hpp"
#include "etude/io/descriptor.hpp"
#include "etude/io/file_system.hpp"

namespace etude::inline v0 {

/// A file mapped into memory and read on first access. Writing to the memory doesn't change the file. Throws
/// CheckpointError for anything that can't be read or isn't a regular file.
///
/// The file must not be truncated while it is mapped: that raises SIGBUS. Replacing or removing a whole
/// checkpoint is safe.
class MappedFile {
 public:
  explicit MappedFile(std::filesystem::path path);
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile() {
    if (bytes_) ::munmap(bytes_, size_);
  }

  const std::filesystem::path& path() const { return path_; }
  std::span<std::byte> bytes() { return {bytes_, size_}; }
  std::span<const std::byte> bytes() const { return {bytes_, size_}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(bytes_), size_}; }

  /// Calls `visit(bytes)` for consecutive pieces of the file, read ahead in larger steps than pages. Throws
  /// CheckpointError for a read error, if the system reports it.
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

}  // namespace etude::inline v0
