#pragma once

#include <utility>

#include "etude/metrics/ranked_scores.hpp"

namespace etude::inline v0::metrics {

/// {"average_precision"}: the mean of the precision at each distinct score, weighted by the increase in
/// recall there. As in scikit-learn, the result is 0 if class 1 has no labels; with several classes, the
/// value of a class without labels is NaN and excluded from means.
class AveragePrecision : public RankedScores {
 public:
  /// Throws ArgumentError if the average is `micro`.
  explicit AveragePrecision(RankingOptions options = {})
      : RankedScores(std::move(options), "average_precision") {}

  /// Throws DataError if a label is outside 0..C-1, or a score is NaN.
  Metrics compute() const;
  void merge(const AveragePrecision& other) { merge_state(other); }
};

}  // namespace etude::inline v0::metrics
