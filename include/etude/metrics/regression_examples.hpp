#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "etude/metrics/streaming_metric.hpp"

namespace etude::inline v0::metrics {

/// The options of regression metrics.
struct RegressionOptions {
  /// Elements with this label are ignored; if unset, none are. Set it to -100 for sequences of different
  /// lengths, which an evaluation pads with that value.
  std::optional<std::int64_t> ignore_index = {};
  std::string name = {};  ///< Replaces the metric's name.
};

/// The predictions and labels of a regression, one example per row and one output per column.
struct RegressionExamples {
  at::Tensor labels;   ///< [n, D], 0 where ignored.
  at::Tensor errors;   ///< [n, D] predictions minus labels, 0 where ignored.
  at::Tensor counted;  ///< bool [n, D]
};

/// Brings predictions and labels into this shape, in float64, or float32 on devices without it. They have the
/// same shape [N, ...], except that one may have an additional last dimension of 1. Throws DataError that
/// begins with `metric` for other shapes.
RegressionExamples regression_examples(std::string_view metric, const at::Tensor& predictions,
                                       const at::Tensor& labels, std::optional<std::int64_t> ignore_index);

/// The mean of a power of the absolute errors; NaN without labels.
class MeanError : public MeanAccumulator {
 public:
  /// Predictions and labels have the same shape [N, ...], except that one may have an additional last
  /// dimension of 1. Throws DataError for other shapes.
  void update(const at::Tensor& predictions, const at::Tensor& labels);
  Metrics compute() const { return {{options_.name, mean(options_.name)}}; }

 protected:
  MeanError(RegressionOptions options, std::string name, double power);

 private:
  RegressionOptions options_;
  double power_;
};

}  // namespace etude::inline v0::metrics
