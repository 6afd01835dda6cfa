#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string_view>

namespace etude::inline v0::metrics {

/// The predictions and labels of a classification in a uniform shape, one example per row.
struct ClassExamples {
  at::Tensor scores;   ///< [n, C], or [n] with scores of class 1; floating-point, or undefined.
  at::Tensor classes;  ///< int64 [n] if predictions are class indices, otherwise undefined.
  at::Tensor labels;   ///< int64 [n]; the lowest int64 for labels that aren't whole numbers.
  at::Tensor counted;  ///< bool [n]: false for ignored labels.

  /// The number of classes with scores; unset if predictions are class indices.
  std::optional<std::int64_t> num_classes() const;

  /// int64 [n]: the class with the highest score (the lowest such class if there is a tie); for single
  /// scores, 1 if the probability exceeds `threshold`, else 0. If one of the example's scores is NaN, the
  /// result is -1, which is never right. Throws ArgumentError unless `threshold` is from 0 to 1.
  at::Tensor predicted(bool from_logits = true, double threshold = 0.5) const;

  /// bool [n]: true if the label, or the class index given as a prediction, is outside 0..size-1.
  at::Tensor outside(std::int64_t size) const;
};

/// Brings predictions and labels into this uniform shape. Labels are [N, ...]. Predictions are scores [N,
/// ..., C] or [N, C, ...]; or one score per label, of class 1, [N, ...], [N, ..., 1] or [N, 1, ...]; or class
/// indices of an integer dtype in these three shapes. Throws DataError that begins with `metric` for other
/// shapes.
ClassExamples class_examples(std::string_view metric, const at::Tensor& predictions, const at::Tensor& labels,
                             std::optional<std::int64_t> ignore_index);

/// The weighted number of occurrences of each of 0..size-1 in `index`; `index` and `weight` are int64 [n].
/// Unlike bincount, it doesn't wait for the device.
at::Tensor counts(const at::Tensor& index, const at::Tensor& weight, std::int64_t size);

/// The number of classes from two sources. Throws ArgumentError if neither is set, DataError if they differ.
std::int64_t agreed_classes(std::string_view metric, std::optional<std::int64_t> option,
                            std::optional<std::int64_t> seen);

/// Throws DataError if `outside`, the number of labels or predictions outside 0..C-1, isn't 0.
void refuse_outside(std::string_view metric, std::int64_t outside);

/// Throws DataError if `unordered`, the number of examples with a NaN among their scores, isn't 0.
void refuse_unordered(std::string_view metric, std::int64_t unordered);

}  // namespace etude::inline v0::metrics
