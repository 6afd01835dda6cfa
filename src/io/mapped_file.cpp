#include "etude/io/mapped_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <utility>

namespace etude::inline v0 {

MappedFile::MappedFile(std::filesystem::path path) : path_(std::move(path)) {
  // Opening a pipe without a writer would block.
  const detail::Descriptor file(
      detail::uninterrupted([&] { return ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); }));
  struct stat status {};
  if (!file || ::fstat(file.get(), &status) != 0) throw fault(errno);
  if (!S_ISREG(status.st_mode))
    throw CheckpointError(fmt::format("{} can't be read: it isn't a regular file", path_.string()));
  size_ = static_cast<std::size_t>(status.st_size);
  if (size_ == 0) return;
  // NORESERVE: with strict overcommit, a writable mapping would otherwise need this much free memory.
  void* const bytes =
      ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file.get(), 0);
  if (bytes == MAP_FAILED) throw fault(errno);
  bytes_ = static_cast<std::byte*>(bytes);
  ::madvise(bytes_, size_, MADV_WILLNEED);
}

}  // namespace etude::inline v0
