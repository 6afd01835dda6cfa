#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "etude/metrics/streaming_metric.hpp"
#include "etude/reflect/enum.hpp"

namespace etude::metrics {

/// How the gaps of the bins become one number: their mean weighted by the examples of each (the expected
/// calibration error), the root of the mean of their squares, or the greatest of them.
ETUDE_ENUM(CalibrationNorm, l1, l2, max);

struct CalibrationErrorOptions {
  std::int64_t bins = 15;  ///< Of equal width from 0 to 1; a confidence of exactly 1 has one to itself.
  CalibrationNorm norm = CalibrationNorm::l1;
  bool from_logits = true;                          ///< Scores are logits, not probabilities.
  std::optional<std::int64_t> ignore_index = -100;  ///< The label that is left out.
  std::string name = "calibration_error";
};

/// {"calibration_error"}: how far the model's confidences are from how often it is right, in bins of about
/// equal confidence, as torchmetrics counts; NaN where there are no labels. Of several classes, the
/// confidence is the greatest probability and right is the class that has it; of two by one score, it is the
/// probability of class 1 and right is that class. Predictions are scores [N, ..., C] or [N, C, ...], or one
/// score of class 1 a label; labels [N, ...].
class CalibrationError : public Accumulator {
 public:
  /// Throws ArgumentError if `bins` is less than 1.
  explicit CalibrationError(CalibrationErrorOptions options = {});

  /// Throws DataError for other shapes.
  void update(const at::Tensor& predictions, const at::Tensor& labels);
  Metrics compute() const;
  void merge(const CalibrationError& other) { merge_state(other); }

 private:
  CalibrationErrorOptions options_;
};

}  // namespace etude::metrics

#ifndef ETUDE_COMPILED
#include "etude/metrics/impl/calibration_error.ipp"
#endif
