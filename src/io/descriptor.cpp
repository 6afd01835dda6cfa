#include "etude/io/descriptor.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace etude::inline v0::detail {

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(number_, other.number_);
  return *this;
}

int Descriptor::close() noexcept {
  const int number = std::exchange(number_, -1);
  // close() frees the descriptor even if it fails with EINTR, and its number may already be reused.
  return number < 0 || ::close(number) == 0 || errno == EINTR ? 0 : errno;
}

int flush_to_disk(int descriptor) {
#ifdef F_FULLFSYNC
  // On macOS fsync leaves the bytes in the drive's cache; not every file system supports more.
  if (uninterrupted([&] { return ::fcntl(descriptor, F_FULLFSYNC); }) == 0) return 0;
#endif
  return uninterrupted([&] { return ::fsync(descriptor); });
}

}  // namespace etude::inline v0::detail
