#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "etude/metrics/streaming_metric.hpp"
#include "etude/reflect/enum.hpp"

namespace etude::inline v0::metrics {

/// The divisor of a confusion matrix's entries: `none` keeps counts, `labels` divides by the number of
/// labels of the class (rows), `predictions` by its number of predictions (columns), `all` by the number of
/// examples.
ETUDE_ENUM(Normalization, none, labels, predictions, all);

struct ConfusionMatrixOptions {
  std::optional<std::int64_t> num_classes = std::nullopt;  ///< Required if predictions are class indices.
  Normalization normalize = Normalization::none;
  bool from_logits = true;                          ///< Single scores are logits, not probabilities.
  double threshold = 0.5;                           ///< Single scores with a higher probability mean class 1.
  std::optional<std::int64_t> ignore_index = -100;  ///< This label is ignored.
  std::string name = "confusion";
};

/// {"confusion_0_0", "confusion_0_1", ...}: the number of examples whose label is the first class and whose
/// prediction is the second. Predictions are scores [N, ..., C] or [N, C, ...], one score of class 1 per
/// label, or class indices; labels [N, ...].
class ConfusionMatrix : public Accumulator {
 public:
  explicit ConfusionMatrix(ConfusionMatrixOptions options = {}) : options_(std::move(options)) {}

  /// Throws DataError for other shapes, and ArgumentError if `num_classes` is required.
  void update(const at::Tensor& predictions, const at::Tensor& labels);
  /// Empty before the first batch. Throws DataError if a label or class is outside 0..C-1, or scores are NaN.
  Metrics compute() const;
  /// Float64 [C, C], with labels as rows and predictions as columns, on the CPU; undefined before the first
  /// batch. 0 if the denominator is 0. Throws as `compute` does.
  at::Tensor matrix() const;
  void merge(const ConfusionMatrix& other) { merge_state(other); }

 private:
  ConfusionMatrixOptions options_;
};

}  // namespace etude::inline v0::metrics
