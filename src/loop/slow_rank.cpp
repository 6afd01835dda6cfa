#include "etude/loop/slow_rank.hpp"

#include <algorithm>

namespace etude::inline v0 {

std::optional<SlowRank::Finding> SlowRank::add(std::vector<double> waits, double seconds) {
  constexpr double too_much = 0.2;
  constexpr int enough_windows = 3;
  // The slowest process waits least. Each other process waits for it at least as long as the difference
  // between the two shortest waits.
  const auto slowest = static_cast<std::size_t>(std::ranges::min_element(waits) - waits.begin());
  std::ranges::partial_sort(waits, waits.begin() + 2);
  const double share = (waits[1] - waits[0]) / seconds;
  const bool is_slow = share > too_much;
  windows_ = !is_slow ? 0 : slowest == slowest_ ? windows_ + 1 : 1;
  slowest_ = slowest;
  if (windows_ < enough_windows || returned_ == slowest) return std::nullopt;
  returned_ = slowest;
  return Finding{.rank = slowest, .share = share};
}

}  // namespace etude::inline v0
