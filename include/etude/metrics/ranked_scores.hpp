#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>

#include "etude/metrics/average.hpp"
#include "etude/metrics/streaming_metric.hpp"

namespace etude::inline v0::metrics {

/// The options of ranking metrics.
struct RankingOptions {
  Average average = Average::automatic;  ///< Any except `micro`.
  bool from_logits = true;               ///< Scores of several classes are logits, not probabilities.
  std::optional<std::int64_t> ignore_index = -100;  ///< This label is ignored.
  std::string name = {};                            ///< Replaces the metric's name.
};

/// The number of examples at each distinct score, in descending order. Float64 [d] each.
struct Ranking {
  at::Tensor positives;  ///< Examples of the class.
  at::Tensor all;        ///< All examples.
};

/// Keeps all scores and labels, which an exact ranking requires. Predictions are scores [N, ..., C] or [N, C,
/// ...], or one score of class 1 per label; labels [N, ...]. Each class is ranked against the rest.
class RankedScores : public Accumulator {
 public:
  /// Throws DataError for other shapes.
  void update(const at::Tensor& predictions, const at::Tensor& labels);

 protected:
  /// Throws ArgumentError if the average is `micro`.
  RankedScores(RankingOptions options, std::string name);

  /// Computes `score` for class 1 or for each class, and excludes classes with NaN from the mean. The result
  /// is NaN if nothing was counted, and `without_positives` if only class 1 is requested and it has no
  /// labels. Throws DataError if a label is outside 0..C-1 or a score is NaN, which scikit-learn refuses too.
  Metrics of_rankings(double (*score)(const Ranking&), double without_positives) const;

 private:
  RankingOptions options_;
};

}  // namespace etude::inline v0::metrics
