#pragma once

#include <utility>

#include "etude/metrics/regression_examples.hpp"

namespace etude::inline v0::metrics {

/// {"mse"}: the mean squared error; NaN without labels.
class MeanSquaredError : public MeanError {
 public:
  explicit MeanSquaredError(RegressionOptions options = {}) : MeanError(std::move(options), "mse", 2) {}
  void merge(const MeanSquaredError& other) { merge_state(other); }
};

}  // namespace etude::inline v0::metrics
