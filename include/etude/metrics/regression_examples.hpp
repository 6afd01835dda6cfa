#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace etude::inline v0::metrics {

/// The options of regression metrics.
struct RegressionOptions {
  /// Elements with this label are ignored; none if unset. Set it to -100 if an evaluation pads sequences with
  /// that.
  std::optional<std::int64_t> ignore_index = {};
  std::string name = {};  ///< Replaces the metric's own name.
};

/// The predictions and labels of a regression, one example per row and one output per column.
struct RegressionExamples {
  at::Tensor labels;   ///< [n, D], 0 where ignored.
  at::Tensor errors;   ///< [n, D] predictions minus labels, 0 where ignored.
  at::Tensor counted;  ///< bool [n, D]
};

/// In float64, or float32 on devices without it. Predictions and labels have the same shape [N, ...], except
/// that one may have an additional last dimension of 1. For other shapes throws DataError that begins with
/// `metric`.
RegressionExamples regression_examples(std::string_view metric, const at::Tensor& predictions,
                                       const at::Tensor& labels, std::optional<std::int64_t> ignore_index);

}  // namespace etude::inline v0::metrics
