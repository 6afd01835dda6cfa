#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "etude/reflect/struct.hpp"

namespace etude {

/// What a RunningMean has come to.
struct RunningMeanState {
  ETUDE_STRUCT(RunningMeanState, (double, sum, "of weight times value", 0.0),
               (double, weight, "of what is in the sum", 0.0),
               (double, leading, "weight of filtered values before the first finite one", 0.0),
               (std::int64_t, filtered, "values that were filtered", 0));
};

/// The weighted mean of numbers and of one-element tensors. Tensors on a device are kept as they are and read
/// together when the mean is asked for (or at the latest after `read_after` of them), so that adding one
/// never waits.
class RunningMean {
 public:
  /// With `filter_non_finite`, a NaN or an infinity counts as the mean of what came before it since the last
  /// `reset`.
  explicit RunningMean(bool filter_non_finite = false) : filter_(filter_non_finite) {}

  void add(double value, double weight = 1);

  /// Throws `DataError` unless `value` is one element.
  void add(const at::Tensor& value, double weight = 1);

  /// The sum of weight times value.
  double sum();
  /// The sum of the weights.
  double weight();
  /// NaN when nothing was added, or nothing finite.
  double mean();
  /// How many values were filtered.
  std::int64_t filtered();
  void reset() { *this = RunningMean(filter_); }

  RunningMeanState state();
  void load_state(const RunningMeanState& state);

 private:
  static constexpr std::size_t read_after = 4096;

  void take(double value, double weight);

  void read();

  bool filter_;
  double sum_ = 0;
  double weight_ = 0;
  double leading_ = 0;
  std::int64_t filtered_ = 0;
  std::vector<at::Tensor> pending_;
  std::vector<double> weights_;
};

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/metrics/running_mean-inl.hpp"
#endif
