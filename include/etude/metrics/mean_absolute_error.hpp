#pragma once

#include <utility>

#include "etude/metrics/regression_examples.hpp"

namespace etude::inline v0::metrics {

/// {"mae"}: the mean absolute error; NaN without labels.
class MeanAbsoluteError : public MeanError {
 public:
  explicit MeanAbsoluteError(RegressionOptions options = {}) : MeanError(std::move(options), "mae", 1) {}
  void merge(const MeanAbsoluteError& other) { merge_state(other); }
};

}  // namespace etude::inline v0::metrics
