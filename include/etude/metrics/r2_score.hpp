#pragma once

#include <ATen/core/Tensor.h>

#include "etude/metrics/regression_examples.hpp"
#include "etude/metrics/streaming_metric.hpp"

namespace etude::inline v0::metrics {

/// {"r2"}: the fraction of the labels' variance that the predictions explain, averaged over the outputs. As
/// in scikit-learn, the result is NaN for fewer than two labels; for constant labels, 1 if all predictions
/// are right and 0 otherwise. It is computed from distances to the mean, so that labels far from 0 lose no
/// digits.
class R2Score : public Accumulator {
 public:
  explicit R2Score(RegressionOptions options = {});

  /// Predictions and labels have the same shape [N, ...], except that one may have an additional last
  /// dimension of 1. Throws DataError for other shapes.
  void update(const at::Tensor& predictions, const at::Tensor& labels);
  Metrics compute() const;
  void merge(const R2Score& other) { merge_state(other); }

 private:
  RegressionOptions options_;
};

}  // namespace etude::inline v0::metrics
