#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

/// Counting without overflow, of numbers that a user or a file gave.
namespace etude::detail {

/// The most examples of a dataset: the sum of two such numbers doesn't overflow.
inline constexpr std::int64_t largest_dataset = std::int64_t{1} << 62;

/// Update steps and epochs are counted up to here, far below 2^53, so that doubles hold them, and what other
/// programs read JSON with.
inline constexpr std::int64_t most_steps = 1'000'000'000'000'000;

/// How many groups of at most `size` make `count`.
constexpr std::int64_t groups_of(std::int64_t count, std::int64_t size) {
  return count / size + (count % size > 0);
}

/// Counts one more in what may have come from a file: a number below 0 counts as 0, and the largest stays.
constexpr void count_up(std::int64_t& count) {
  if (count = std::max<std::int64_t>(count, 0); count < std::numeric_limits<std::int64_t>::max()) ++count;
}

}  // namespace etude::detail
