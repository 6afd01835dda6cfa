#pragma once

#include <utility>

namespace etude::inline v0 {

/// Gives a variable another value for the lifetime of this, and then the former one back.
template <class T>
class ScopedValue {
 public:
  ScopedValue(T& variable, T value)
      : variable_(variable), before_(std::exchange(variable, std::move(value))) {}
  ScopedValue(const ScopedValue&) = delete;
  ScopedValue& operator=(const ScopedValue&) = delete;
  ~ScopedValue() { variable_ = std::move(before_); }

 private:
  T& variable_;
  T before_;
};

}  // namespace etude::inline v0
