#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>

#include "etude/metrics/streaming_metric.hpp"
#include "etude/reflect/enum.hpp"

namespace etude::inline v0::metrics {

/// How the gaps of the bins are combined: `l1` takes their mean weighted by the number of examples (the
/// expected calibration error), `l2` the root of their weighted mean square, `max` their maximum.
ETUDE_ENUM(CalibrationNorm, l1, l2, max);

struct CalibrationErrorOptions {
  std::int64_t bins =
      15;  ///< The number of bins of equal width from 0 to 1; a confidence of exactly 1 gets an extra bin.
  CalibrationNorm norm = CalibrationNorm::l1;
  bool from_logits = true;                          ///< Scores are logits, not probabilities.
  std::optional<std::int64_t> ignore_index = -100;  ///< This label is ignored.
  std::string name = "calibration_error";
};

/// {"calibration_error"}: the difference between the model's confidence and its accuracy, in bins of similar
/// confidence, as in torchmetrics; NaN without labels or if a score is NaN. With several classes, the
/// confidence is the highest probability, compared with the accuracy of that class; with one score, it is the
/// probability of class 1, compared with the frequency of class 1. Predictions are scores [N, ..., C] or [N,
/// C, ...], or one score of class 1 per label; labels [N, ...].
class CalibrationError : public Accumulator {
 public:
  /// Throws ArgumentError if `bins` is less than 1.
  explicit CalibrationError(CalibrationErrorOptions options = {});

  /// Throws DataError for other shapes.
  void update(const at::Tensor& predictions, const at::Tensor& labels);
  /// Throws DataError if a label is outside 0..C-1.
  Metrics compute() const;
  void merge(const CalibrationError& other) { merge_state(other); }

 private:
  CalibrationErrorOptions options_;
};

}  // namespace etude::inline v0::metrics
