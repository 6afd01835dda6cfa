#pragma once

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
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor() { close(); }

  explicit operator bool() const { return number_ >= 0; }
  int get() const { return number_; }
  /// Closes the descriptor. Returns the error as an `errno`, or 0.
  int close() noexcept;

 private:
  int number_ = -1;
};

int flush_to_disk(int descriptor);

}  // namespace etude::inline v0::detail
