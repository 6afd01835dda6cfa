#include "etude/metrics/average_precision.hpp"

#include <torch/types.h>

namespace etude::inline v0::metrics {

Metrics AveragePrecision::compute() const {
  return of_rankings(
      [](const Ranking& ranking) {
        const auto precision = ranking.positives.cumsum(0) / ranking.all.cumsum(0);
        return ((ranking.positives * precision).sum() / ranking.positives.sum()).item<double>();
      },
      0);
}

}  // namespace etude::inline v0::metrics
