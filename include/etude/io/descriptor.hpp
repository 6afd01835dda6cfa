#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace etude::detail {

/// `call()`, once more whenever a signal came between.
template <class Call>
auto uninterrupted(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

/// A file descriptor that is closed at the end.
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
  /// The error that closing met, or 0.
  int close() noexcept {
    const int number = std::exchange(number_, -1);
    // After EINTR it is closed all the same, and its number may be another file's already.
    return number < 0 || ::close(number) == 0 || errno == EINTR ? 0 : errno;
  }

 private:
  int number_ = -1;
};

inline int flush_to_disk(int descriptor) {
#ifdef F_FULLFSYNC
  // macOS's fsync leaves the bytes in the drive's cache; not every file system there has more to offer.
  if (uninterrupted([&] { return ::fcntl(descriptor, F_FULLFSYNC); }) == 0) return 0;
#endif
  return uninterrupted([&] { return ::fsync(descriptor); });
}

}  // namespace etude::detail
