#pragma once

#include <utility>

#include "etude/metrics/ranked_scores.hpp"

namespace etude::inline v0::metrics {

/// {"auroc"}: the exact area under the ROC curve: the fraction of (positive, negative) pairs whose scores are
/// in the right order, with ties counting half. NaN if there are no such pairs.
class AUROC : public RankedScores {
 public:
  /// Throws ArgumentError if the average is `micro`.
  explicit AUROC(RankingOptions options = {}) : RankedScores(std::move(options), "auroc") {}

  /// Throws DataError if a label is outside 0..C-1, or a score is NaN.
  Metrics compute() const;
  void merge(const AUROC& other) { merge_state(other); }
};

}  // namespace etude::inline v0::metrics
