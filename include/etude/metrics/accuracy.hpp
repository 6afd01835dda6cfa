#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "etude/metrics/eval_prediction.hpp"
#include "etude/metrics/metrics.hpp"
#include "etude/metrics/streaming_metric.hpp"

namespace etude::metrics {

/// {"accuracy"}: the share of labels that are the class of the greatest logit. Labels [N, ...] of an integer
/// dtype, -100 left out; predictions are logits [N, ..., C] or [N, C, ...], or already classes of the shape
/// of the labels. Throws `DataError` for other shapes.
Metrics accuracy(const EvalPrediction& p);

struct AccuracyOptions {
  std::int64_t top_k = 1;   ///< How many of the greatest scores the label may be among.
  bool from_logits = true;  ///< A single score is a logit, not a probability.
  double threshold = 0.5;   ///< The probability above which a single score means class 1.
  std::optional<std::int64_t> ignore_index = -100;  ///< The label that is left out.
  std::string name = {};                            ///< Instead of "accuracy", or "top_5_accuracy".
};

/// {"accuracy"}, or {"top_5_accuracy"}: the share of labels that are among the classes of the `top_k`
/// greatest scores; NaN where there are no labels. Of equal scores the earlier class counts as the greater.
/// Predictions are scores [N, ..., C] or [N, C, ...], one score of class 1 a label, or classes; labels [N,
/// ...].
class Accuracy : public Accumulator {
 public:
  /// Throws ArgumentError if `top_k` is less than 1.
  explicit Accuracy(AccuracyOptions options = {});

  /// Throws DataError for other shapes, or where `top_k` needs more than one score a label.
  void update(const at::Tensor& predictions, const at::Tensor& labels);
  Metrics compute() const;
  void merge(const Accuracy& other) { merge_state(other); }

 private:
  AccuracyOptions options_;
};

}  // namespace etude::metrics

#ifndef ETUDE_COMPILED
#include "etude/metrics/impl/accuracy.ipp"
#endif
