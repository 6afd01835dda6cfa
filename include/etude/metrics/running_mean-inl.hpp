#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "etude/error.hpp"
#include "etude/linkage.hpp"
#include "etude/metrics/metrics.hpp"
#include "etude/metrics/running_mean.hpp"
#include "etude/reflect/struct.hpp"

namespace etude {

ETUDE_INLINE void RunningMean::add(double value, double weight) {
  read();
  take(value, weight);
}

ETUDE_INLINE void RunningMean::add(const at::Tensor& value, double weight) {
  if (!value.defined() || value.numel() != 1) throw DataError("a value to log must be one element");
  if (value.is_cpu() && pending_.empty() && value.scalar_type() == at::kFloat) {
    take(*value.data_ptr<float>(), weight);  // Straight from memory: no operator runs.
    return;
  }
  pending_.push_back(value.detach());
  weights_.push_back(weight);
  if (pending_.size() >= read_after) read();
}

ETUDE_INLINE double RunningMean::sum() { return mean() * weight(); }

ETUDE_INLINE double RunningMean::weight() {
  read();
  return weight_ + leading_;
}

ETUDE_INLINE double RunningMean::mean() {
  read();
  return detail::without_sign_of_nan(sum_ / weight_);
}

ETUDE_INLINE std::int64_t RunningMean::filtered() {
  read();
  return filtered_;
}

ETUDE_INLINE RunningMeanState RunningMean::state() {
  read();
  return {sum_, weight_, leading_, filtered_};
}

ETUDE_INLINE void RunningMean::load_state(const RunningMeanState& state) {
  reset();
  sum_ = state.sum;
  weight_ = state.weight;
  leading_ = state.leading;
  filtered_ = state.filtered;
}

ETUDE_INLINE void RunningMean::take(double value, double weight) {
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

ETUDE_INLINE void RunningMean::read() {
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

}  // namespace etude
