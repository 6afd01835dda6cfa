#pragma once

#include <algorithm>
#include <ctime>
#include <limits>

namespace toy {

/// The CPU time of `act(2 n)` divided by that of `act(n)`, each the best of three: about 2 if it grows
/// linearly, 4 if quadratically.
template <class Act>
double growth(int n, Act&& act) {
  const auto seconds = [&](int size) {
    auto best = std::numeric_limits<double>::infinity();
    for (int i = 0; i < 3; ++i) {
      const auto begin = std::clock();
      act(size);
      best = std::min(best, static_cast<double>(std::clock() - begin));
    }
    return best;
  };
  const auto once = seconds(n);
  return seconds(2 * n) / once;
}

}  // namespace toy
