#pragma once

#include <utility>

namespace etude::inline v0 {

/// Sets a variable to another value, and restores the former one on destruction.
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
