#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "etude/error.hpp"
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

  void add(double value, double weight = 1) {
    read();
    take(value, weight);
  }

  /// Throws `DataError` unless `value` is one element.
  void add(const at::Tensor& value, double weight = 1) {
    if (!value.defined() || value.numel() != 1) throw DataError("a value to log must be one element");
    if (value.is_cpu() && pending_.empty() && value.scalar_type() == at::kFloat) {
      take(*value.data_ptr<float>(), weight);  // Straight from memory: no operator runs.
      return;
    }
    pending_.push_back(value.detach());
    weights_.push_back(weight);
    if (pending_.size() >= read_after) read();
  }

  /// The sum of weight times value.
  double sum() { return mean() * weight(); }
  /// The sum of the weights.
  double weight() {
    read();
    return weight_ + leading_;
  }
  /// NaN when nothing was added, or nothing finite.
  double mean() {
    read();
    return sum_ / weight_;
  }
  /// How many values were filtered.
  std::int64_t filtered() {
    read();
    return filtered_;
  }
  void reset() { *this = RunningMean(filter_); }

  RunningMeanState state() {
    read();
    return {sum_, weight_, leading_, filtered_};
  }
  void load_state(const RunningMeanState& state) {
    reset();
    sum_ = state.sum;
    weight_ = state.weight;
    leading_ = state.leading;
    filtered_ = state.filtered;
  }

 private:
  static constexpr std::size_t read_after = 4096;

  void take(double value, double weight) {
    if (filter_ && !std::isfinite(value)) {
      ++filtered_;
      if (weight_ == 0) {
        leading_ += weight;  // Nothing came before it: it counts as the mean of what comes.
        return;
      }
      value = sum_ / weight_;
    }
    sum_ += value * weight;
    weight_ += weight;
  }

  void read() {
    if (pending_.empty()) return;
    std::vector<at::Tensor> flat;
    flat.reserve(pending_.size());
    for (const auto& value : pending_) flat.push_back(value.reshape({1}).to(at::kDouble));
    const auto values = at::cat(flat).cpu();
    const auto* data = values.data_ptr<double>();
    const auto weights = std::exchange(weights_, {});
    pending_.clear();
    for (std::size_t i = 0; i < weights.size(); ++i) take(data[i], weights[i]);
  }

  bool filter_;
  double sum_ = 0;
  double weight_ = 0;
  double leading_ = 0;
  std::int64_t filtered_ = 0;
  std::vector<at::Tensor> pending_;
  std::vector<double> weights_;
};

}  // namespace etude
