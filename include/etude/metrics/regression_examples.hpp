#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace etude::metrics {

/// What the metrics of a regression can be told.
struct RegressionOptions {
  /// The label that is left out, element by element, whatever is predicted for it; none if unset. Set it to
  /// -100 where an evaluation pads sequences of different lengths with that.
  std::optional<std::int64_t> ignore_index = {};
  std::string name = {};  ///< Instead of the metric's own.
};

/// The predictions and labels of a regression, one example a row and one output a column.
struct RegressionExamples {
  at::Tensor labels;   ///< [n, D], 0 where it isn't counted.
  at::Tensor errors;   ///< [n, D] predictions less labels, 0 where they aren't counted.
  at::Tensor counted;  ///< bool [n, D]
};

/// In float64, or float32 on a device that has no more. Predictions are of the labels' shape, [N, ...], but
/// for a last dimension of 1 that one of them may have more. Throws DataError for other shapes, in the name
/// of `metric`.
RegressionExamples regression_examples(std::string_view metric, const at::Tensor& predictions,
                                       const at::Tensor& labels, std::optional<std::int64_t> ignore_index);

}  // namespace etude::metrics

#ifndef ETUDE_COMPILED
#include "etude/metrics/impl/regression_examples.ipp"
#endif
