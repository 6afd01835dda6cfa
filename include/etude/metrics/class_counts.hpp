#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>

#include "etude/metrics/average.hpp"
#include "etude/metrics/streaming_metric.hpp"

namespace etude::metrics {

/// What precision, recall and F can be told.
struct ClassMetricOptions {
  Average average = Average::automatic;
  std::optional<std::int64_t> num_classes = std::nullopt;  ///< Needed where predictions are classes.
  bool from_logits = true;                                 ///< A single score is a logit, not a probability.
  double threshold = 0.5;  ///< The probability above which a single score means class 1.
  std::optional<std::int64_t> ignore_index = -100;  ///< The label that is left out.
  std::string name = {};                            ///< Instead of the metric's own.
};

/// Counts, for each class, its labels, its predictions and where the two meet. Predictions are scores
/// [N, ..., C] or [N, C, ...], one score of class 1 a label, or classes; labels [N, ...].
class ClassCounts : public Accumulator {
 public:
  /// Throws DataError for other shapes, and ArgumentError if `num_classes` is needed.
  void update(const at::Tensor& predictions, const at::Tensor& labels);

 protected:
  ClassCounts(ClassMetricOptions options, std::string name);

  /// The mean of precision and recall with those weights, the harmonic one: of precision alone with 1 and 0.
  Metrics mean_of(double precision, double recall) const;

 private:
  ClassMetricOptions options_;
};

}  // namespace etude::metrics

#ifndef ETUDE_COMPILED
#include "etude/metrics/impl/class_counts.ipp"
#endif
