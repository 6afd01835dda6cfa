#include "etude/metrics/auroc.hpp"

#include <torch/types.h>

#include <limits>

namespace etude::inline v0::metrics {

Metrics AUROC::compute() const {
  return of_rankings(
      [](const Ranking& ranking) {
        const auto negatives = ranking.all - ranking.positives;
        // The number of negatives ranked lower than each score; negatives with the same score count half.
        const auto below = negatives.sum() - negatives.cumsum(0);
        const auto right = (ranking.positives * (below + negatives / 2)).sum();
        return (right / (ranking.positives.sum() * negatives.sum())).item<double>();
      },
      std::numeric_limits<double>::quiet_NaN());
}

}  // namespace etude::inline v0::metrics
