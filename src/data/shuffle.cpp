#include "etude/data/shuffle.hpp"

#include <algorithm>
#include <cmath>

#include "etude/base/mix.hpp"

namespace etude::inline v0::detail {

KeyedPermutation::KeyedPermutation(std::int64_t size, std::uint64_t seed, std::int64_t epoch)
    : size_(static_cast<std::uint64_t>(size)),
      rows_(std::max(least_side, static_cast<std::uint64_t>(std::sqrt(static_cast<double>(size))))),
      columns_(std::max(least_side, size_ / rows_ + (size_ % rows_ != 0))) {
  const auto key = mix(mix(seed, 3), static_cast<std::uint64_t>(epoch));
  for (std::size_t i = 0; i < keys_.size(); ++i) keys_[i] = mix(key, i);
}

std::int64_t KeyedPermutation::operator[](std::int64_t place) const {
  auto number = static_cast<std::uint64_t>(place);
  do {
    number = encipher(number);
  } while (number >= size_);
  return static_cast<std::int64_t>(number);
}

std::uint64_t KeyedPermutation::encipher(std::uint64_t number) const {
  auto row = number / columns_, column = number % columns_;
  for (std::size_t i = 0; i < rounds; i += 2) {
    row = sum(row, below(rows_, mix(keys_[i], column)), rows_);
    column = sum(column, below(columns_, mix(keys_[i + 1], row)), columns_);
  }
  return row * columns_ + column;
}

}  // namespace etude::inline v0::detail
