#pragma once

#include <utility>

#include "etude/metrics/ranked_scores.hpp"

namespace etude::metrics {

/// {"auroc"}: the area under the curve of true against false positive rates, exactly: the share of pairs of
/// an example of the class and another that the scores order rightly, where equal scores count half. NaN
/// where there are no such pairs.
class AUROC : public RankedScores {
 public:
  /// Throws ArgumentError if the average is `micro`.
  explicit AUROC(RankingOptions options = {}) : RankedScores(std::move(options), "auroc") {}

  /// Throws DataError if some label was outside of 0..C-1.
  Metrics compute() const;
  void merge(const AUROC& other) { merge_state(other); }
};

}  // namespace etude::metrics

#ifndef ETUDE_COMPILED
#include "etude/metrics/impl/auroc.ipp"
#endif
