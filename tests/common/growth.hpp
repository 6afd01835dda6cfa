#pragma once

#include <algorithm>
#include <ctime>
#include <limits>

namespace toy {

/// How many times as much of the processor's time `act(2 n)` takes as `act(n)`, each the best of three: about
/// 2 where time grows as n does, 4 where it grows as its square.
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
