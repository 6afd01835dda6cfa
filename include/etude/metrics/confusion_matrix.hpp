#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "etude/metrics/streaming_metric.hpp"
#include "etude/reflect/enum.hpp"

namespace etude::metrics {

/// What the entries of a confusion matrix are shares of: nothing (they are counts), the labels of their class
/// (rows), the predictions of their class (columns), or everything.
ETUDE_ENUM(Normalization, none, labels, predictions, all);

struct ConfusionMatrixOptions {
  std::optional<std::int64_t> num_classes = std::nullopt;  ///< Needed where predictions are classes.
  Normalization normalize = Normalization::none;
  bool from_logits = true;  ///< A single score is a logit, not a probability.
  double threshold = 0.5;   ///< The probability above which a single score means class 1.
  std::optional<std::int64_t> ignore_index = -100;  ///< The label that is left out.
  std::string name = "confusion";
};

/// {"confusion_0_0", "confusion_0_1", ...}: how many labels of the first class were taken for the second.
/// Predictions are scores [N, ..., C] or [N, C, ...], one score of class 1 a label, or classes; labels
/// [N, ...].
class ConfusionMatrix : public Accumulator {
 public:
  explicit ConfusionMatrix(ConfusionMatrixOptions options = {}) : options_(std::move(options)) {}

  /// Throws DataError for other shapes, and ArgumentError if `num_classes` is needed.
  void update(const at::Tensor& predictions, const at::Tensor& labels);
  /// Nothing before the first batch. Throws DataError if some label or class was outside of 0..C-1.
  Metrics compute() const;
  /// Float64 [C, C], labels down and predictions across, on the CPU; undefined before the first batch. 0
  /// where it is a share of nothing. Throws what `compute` throws.
  at::Tensor matrix() const;
  void merge(const ConfusionMatrix& other) { merge_state(other); }

 private:
  ConfusionMatrixOptions options_;
};

}  // namespace etude::metrics

#ifndef ETUDE_COMPILED
#include "etude/metrics/impl/confusion_matrix.ipp"
#endif
