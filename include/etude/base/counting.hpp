#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

/// Counting with numbers that come from users or files: safe from overflow, and exact where a fraction of a
/// total becomes a count.
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

/// From here on, a double can't represent every whole number.
inline constexpr double largest_whole = 9007199254740992.0;  // 2^53

/// `share` of `total / divisor`, rounded down: the largest whole number m for which m * divisor / total isn't
/// above `share`. `total` and `divisor` are whole numbers, `share` is at least 0.
///
/// 0.07 means 7/100, which isn't a double, and neither is its product with 100. But 0.07 and 7.0 / 100 are
/// both the double nearest to 7/100. So quotients of whole numbers, rounded once as `share` was, compare with
/// it as the exact numbers do, whereas a product may be just above or below the right whole number.
double share_rounded_down(double share, double total, double divisor = 1);

/// `share` of `total`, rounded up by the same rule: the smallest whole number m for which m / total isn't
/// below `share`.
double share_rounded_up(double share, double total);

/// The number of intervals of this size that end at or before `position`. A position such as an epoch is
/// itself rounded, so one that is less than a relative 1e-12 below the end of an interval counts as having
/// reached it.
inline double intervals_in(double position, double interval) {
  return std::floor(position / interval * (1 + 1e-12));
}

/// Increments a counter that may have been read from a file: negative values count as 0, and the maximum
/// saturates.
constexpr void count_up(std::int64_t& count) {
  if (count = std::max<std::int64_t>(count, 0); count < std::numeric_limits<std::int64_t>::max()) ++count;
}

}  // namespace etude::inline v0::detail
