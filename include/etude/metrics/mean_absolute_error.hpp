#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

#include "etude/metrics/regression_examples.hpp"
#include "etude/metrics/streaming_metric.hpp"

namespace etude::inline v0::metrics {

/// {"mae"}: the mean absolute error; NaN without labels.
class MeanAbsoluteError : public Accumulator {
 public:
  explicit MeanAbsoluteError(RegressionOptions options = {});

  /// Predictions and labels have the same shape [N, ...], except that one may have an additional last
  /// dimension of 1. Throws DataError for other shapes.
  void update(const at::Tensor& predictions, const at::Tensor& labels);
  Metrics compute() const;
  void merge(const MeanAbsoluteError& other) { merge_state(other); }

 private:
  RegressionOptions options_;
};

}  // namespace etude::inline v0::metrics
