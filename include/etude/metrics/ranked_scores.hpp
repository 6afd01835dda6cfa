#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>

#include "etude/metrics/average.hpp"
#include "etude/metrics/streaming_metric.hpp"

namespace etude::metrics {

/// What the metrics of rankings can be told.
struct RankingOptions {
  Average average = Average::automatic;  ///< Any but `micro`.
  bool from_logits = true;               ///< Scores of several classes are logits, not probabilities.
  std::optional<std::int64_t> ignore_index = -100;  ///< The label that is left out.
  std::string name = {};                            ///< Instead of the metric's own.
};

/// The examples of each distinct score, from the greatest down. Float64 [d] each.
struct Ranking {
  at::Tensor positives;  ///< How many are of the class.
  at::Tensor all;        ///< How many there are.
};

/// Keeps all scores and labels, since a ranking is exact only when all are there. Predictions are scores
/// [N, ..., C] or [N, C, ...], or one score of class 1 a label; labels [N, ...]. Each class is ranked against
/// the rest.
class RankedScores : public Accumulator {
 public:
  /// Throws DataError for other shapes.
  void update(const at::Tensor& predictions, const at::Tensor& labels);

 protected:
  /// Throws ArgumentError if the average is `micro`.
  RankedScores(RankingOptions options, std::string name);

  /// `score` of class 1, or of each class with those left out of the mean whose score is NaN. NaN where a
  /// prediction is NaN, or nothing was counted; `without_positives` where class 1 alone is asked for and has
  /// no labels. Throws DataError if some label was outside of 0..C-1.
  Metrics of_rankings(double (*score)(const Ranking&), double without_positives) const;

 private:
  RankingOptions options_;
};

}  // namespace etude::metrics

#ifndef ETUDE_COMPILED
#include "etude/metrics/impl/ranked_scores.ipp"
#endif
