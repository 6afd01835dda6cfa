#pragma once

#include <memory>
#include <utility>

namespace etude::detail {

/// What a callback holds while a run is open. A copy of the callback begins without.
template <class T>
class NotCopied : public std::shared_ptr<T> {
 public:
  NotCopied() = default;
  NotCopied(std::shared_ptr<T> held) : std::shared_ptr<T>(std::move(held)) {}
  NotCopied(const NotCopied&) : std::shared_ptr<T>() {}
  NotCopied(NotCopied&&) noexcept = default;
  NotCopied& operator=(const NotCopied&) {
    this->reset();
    return *this;
  }
  NotCopied& operator=(NotCopied&&) noexcept = default;
  ~NotCopied() = default;
};

}  // namespace etude::detail
