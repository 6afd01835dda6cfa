#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace etude::inline v0::detail {

/// Repeats `call()` while it fails with EINTR.
template <class Call>
auto uninterrupted(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

/// Closes the file descriptor on destruction.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor() { close(); }

  explicit operator bool() const { return number_ >= 0; }
  int get() const { return number_; }
  /// The error from closing, or 0.
  int close() noexcept {
    const int number = std::exchange(number_, -1);
    // After EINTR the descriptor is closed all the same, and its number may already be reused.
    return number < 0 || ::close(number) == 0 || errno == EINTR ? 0 : errno;
  }

 private:
  int number_ = -1;
};

inline int flush_to_disk(int descriptor) {
#ifdef F_FULLFSYNC
  // On macOS fsync leaves the bytes in the drive's cache; not every file system supports more.
  if (uninterrupted([&] { return ::fcntl(descriptor, F_FULLFSYNC); }) == 0) return 0;
#endif
  return uninterrupted([&] { return ::fsync(descriptor); });
}

}  // namespace etude::inline v0::detail
