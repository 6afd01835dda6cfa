#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace etude::inline v0 {

/// Finds a process that the others wait for again and again: for more than a fifth of the time, in three
/// windows in a row. Occasional waits are normal, and don't count.
class SlowRank {
 public:
  struct Finding {
    std::size_t rank = 0;
    double share = 0;  ///< the fraction of the last window's time in which the others waited
  };

  /// Adds a window of `seconds`, with the seconds that each of at least two processes has waited. Returns the
  /// slow process, unless it is the one that was returned last.
  std::optional<Finding> add(std::vector<double> waits, double seconds);

 private:
  int windows_ = 0;  // in a row, in which the others waited for the same process
  std::optional<std::size_t> slowest_, returned_;
};

}  // namespace etude::inline v0
