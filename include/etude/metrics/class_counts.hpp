#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>

#include "etude/metrics/average.hpp"
#include "etude/metrics/streaming_metric.hpp"

namespace etude::inline v0::metrics {

/// The options of precision, recall and F.
struct ClassMetricOptions {
  Average average = Average::automatic;
  std::optional<std::int64_t> num_classes = std::nullopt;  ///< Required if predictions are class indices.
  bool from_logits = true;                                 ///< Single scores are logits, not probabilities.
  double threshold = 0.5;                           ///< Single scores with a higher probability mean class 1.
  std::optional<std::int64_t> ignore_index = -100;  ///< This label is ignored.
  std::string name = {};                            ///< Replaces the metric's name.
};

/// Counts each class's labels, predictions and correct predictions. An example with a NaN among its scores
/// has a label but no prediction. Predictions are scores [N, ..., C] or [N, C, ...], one score of class 1 per
/// label, or class indices; labels [N, ...].
class ClassCounts : public Accumulator {
 public:
  /// Throws DataError for other shapes, and ArgumentError if `num_classes` is required.
  void update(const at::Tensor& predictions, const at::Tensor& labels);

 protected:
  ClassCounts(ClassMetricOptions options, std::string name);

  /// The harmonic mean of precision and recall with these weights, averaged over the classes: weights 1 and 0
  /// give the precision alone.
  Metrics mean_of(double precision, double recall) const;

 private:
  ClassMetricOptions options_;
};

}  // namespace etude::inline v0::metrics
