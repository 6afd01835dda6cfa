#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string_view>

namespace etude::metrics {

/// The predictions and labels of a classification, one example a row, whatever shapes they came in.
struct ClassExamples {
  at::Tensor scores;   ///< [n, C], or [n] of class 1 against class 0, of a floating dtype; or undefined.
  at::Tensor classes;  ///< int64 [n], where the predictions were classes; else undefined.
  at::Tensor labels;   ///< int64 [n]; -1 where a label is no whole number.
  at::Tensor counted;  ///< bool [n]: false where the label is the one to ignore.

  /// Of how many classes the scores are; none for predictions that were classes.
  std::optional<std::int64_t> num_classes() const;

  /// int64 [n]: the class of the greatest score, or 1 where a single score beats `threshold`, a probability.
  at::Tensor predicted(bool from_logits, double threshold) const;

  /// bool [n]: where the label, or the class that was taken for it, is not in 0..size-1.
  at::Tensor outside(const at::Tensor& taken, std::int64_t size) const;
};

/// Labels are [N, ...]. Predictions are scores [N, ..., C] or [N, C, ...]; or one score a label, which is
/// that of class 1, [N, ...] or [N, ..., 1]; or classes of an integer dtype, of the labels' shape. Throws
/// DataError for other shapes, in the name of `metric`.
ClassExamples class_examples(std::string_view metric, const at::Tensor& predictions, const at::Tensor& labels,
                             std::optional<std::int64_t> ignore_index);

/// How often each of 0..size-1 is in `index` (int64 [n]), each time counted with its `weight` (int64 [n]):
/// a bincount that doesn't wait for a device.
at::Tensor counts(const at::Tensor& index, const at::Tensor& weight, std::int64_t size);

/// The number of classes that two sources agree on. Throws ArgumentError if neither says, DataError if they
/// differ.
std::int64_t agreed_classes(std::string_view metric, std::optional<std::int64_t> option,
                            std::optional<std::int64_t> seen);

/// Throws DataError if `outside`, a number of labels or predictions, isn't 0: those that were not of 0..C-1.
void refuse_outside(std::string_view metric, std::int64_t outside);

}  // namespace etude::metrics

#ifndef ETUDE_COMPILED
#include "etude/metrics/impl/class_examples.ipp"
#endif
