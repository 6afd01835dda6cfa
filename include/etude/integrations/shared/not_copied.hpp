#pragma once

#include <memory>
#include <utility>

namespace etude::inline v0::detail {

/// A member that holds an open run; a copied callback begins without one.
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

}  // namespace etude::inline v0::detail
