#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

/// Overflow-safe counting for numbers that come from users or files.
namespace etude::inline v0::detail {

/// The maximum size of a dataset: the sum of two such sizes doesn't overflow.
inline constexpr std::int64_t largest_dataset = std::int64_t{1} << 62;

/// The maximum number of update steps and epochs: far below 2^53, so doubles (and other programs' JSON
/// parsers) represent it exactly.
inline constexpr std::int64_t most_steps = 1'000'000'000'000'000;

/// The number of groups of at most `size` in `count`.
constexpr std::int64_t groups_of(std::int64_t count, std::int64_t size) {
  return count / size + (count % size > 0);
}

/// Increments a counter that may have been read from a file: negative values count as 0, and the maximum
/// saturates.
constexpr void count_up(std::int64_t& count) {
  if (count = std::max<std::int64_t>(count, 0); count < std::numeric_limits<std::int64_t>::max()) ++count;
}

}  // namespace etude::inline v0::detail
