#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>

#include "etude/metrics/eval_prediction.hpp"
#include "etude/metrics/metrics.hpp"
#include "etude/metrics/streaming_metric.hpp"

namespace etude::inline v0::metrics {

/// {"accuracy"}: the result of `Accuracy` with its default options over the whole evaluation.
Metrics accuracy(const EvalPrediction& p);

struct AccuracyOptions {
  std::int64_t top_k = 1;                           ///< The label must be among this many highest scores.
  bool from_logits = true;                          ///< Single scores are logits, not probabilities.
  double threshold = 0.5;                           ///< Single scores with a higher probability mean class 1.
  std::optional<std::int64_t> ignore_index = -100;  ///< This label is ignored.
  std::string name = {};                            ///< Replaces "accuracy" or "top_5_accuracy".
};

/// {"accuracy"} or {"top_5_accuracy"}: the fraction of labels that are among the `top_k` classes with the
/// highest scores; NaN without labels. Ties go to the lower class, and an example with a NaN among its scores
/// counts as wrong. Predictions are scores [N, ..., C] or [N, C, ...], one score of class 1 per label, or
/// class indices; labels [N, ...], so one-hot labels need `.argmax(1)`.
class Accuracy : public MeanAccumulator {
 public:
  /// Throws ArgumentError if `top_k` is less than 1.
  explicit Accuracy(AccuracyOptions options = {});

  /// Throws DataError for other shapes, or if `top_k` needs more than one score per label.
  void update(const at::Tensor& predictions, const at::Tensor& labels);
  /// Throws DataError if a label is outside 0..C-1.
  Metrics compute() const { return {{options_.name, mean(options_.name)}}; }
  void merge(const Accuracy& other) { merge_state(other); }

 private:
  AccuracyOptions options_;
};

}  // namespace etude::inline v0::metrics
