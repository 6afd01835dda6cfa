#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

#include "etude/metrics/regression_examples.hpp"
#include "etude/metrics/streaming_metric.hpp"

namespace etude::metrics {

/// {"r2"}: the share of the labels' variance that the predictions explain, the mean over the outputs. As in
/// scikit-learn, NaN for fewer than two labels, and for labels that are all the same 1 if there are no
/// errors, else 0. The squares are of distances from the mean, so that labels far from 0 lose no digits.
class R2Score : public Accumulator {
 public:
  explicit R2Score(RegressionOptions options = {});

  /// Predictions and labels [N, ...] of one shape, or one of them with a last dimension of 1 more. Throws
  /// DataError for other shapes.
  void update(const at::Tensor& predictions, const at::Tensor& labels);
  Metrics compute() const;
  void merge(const R2Score& other) { merge_state(other); }

 private:
  RegressionOptions options_;
};

}  // namespace etude::metrics

#ifndef ETUDE_COMPILED
#include "etude/metrics/impl/r2_score.ipp"
#endif
