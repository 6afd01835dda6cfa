#pragma once

#include <utility>

#include "etude/metrics/ranked_scores.hpp"

namespace etude::metrics {

/// {"average_precision"}: the mean of the precisions at each distinct score, weighted by how much recall
/// grows there. As in scikit-learn, 0 where class 1 has no labels; a class of several that has none is NaN
/// and counts in no mean.
class AveragePrecision : public RankedScores {
 public:
  /// Throws ArgumentError if the average is `micro`.
  explicit AveragePrecision(RankingOptions options = {})
      : RankedScores(std::move(options), "average_precision") {}

  /// Throws DataError if some label was outside of 0..C-1.
  Metrics compute() const;
  void merge(const AveragePrecision& other) { merge_state(other); }
};

}  // namespace etude::metrics

#ifndef ETUDE_COMPILED
#include "etude/metrics/impl/average_precision.ipp"
#endif
