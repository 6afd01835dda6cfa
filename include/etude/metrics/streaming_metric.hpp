#pragma once

#include <ATen/core/Tensor.h>

#include <concepts>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/metrics/metrics.hpp"

namespace etude::inline v0::metrics {

/// How part of a metric's state is merged with the same part from another process: added elementwise, or
/// concatenated along the first dimension.
enum class Merging { sum, concatenate };

/// Part of a metric's state.
struct MetricState {
  std::string name;
  at::Tensor value;
  Merging merging;
};

/// Accumulates batches on their device, without reading anything back before `compute()`. Batches may have
/// any sizes; the states of several processes can be merged. An unused metric has no state.
template <class M>
concept StreamingMetric =
    std::copyable<M> && requires(M metric, const M& other, const at::Tensor& predictions,
                                 const at::Tensor& labels, const std::vector<MetricState>& state) {
                          metric.update(predictions, labels);
                          { other.compute() } -> std::same_as<Metrics>;
                          metric.reset();
                          { other.state() } -> std::same_as<std::vector<MetricState>>;
                          metric.load_state(state);
                          metric.merge(other);
                        };

/// Replaces the metric's state with the merged `states`. Empty states are skipped. Returns false if all are
/// empty.
template <StreamingMetric M>
bool load_merged(M& metric, const std::vector<std::vector<MetricState>>& states) {
  metric.reset();
  bool any = false;
  for (const auto& state : states) {
    if (state.empty()) continue;
    auto part = metric;
    part.load_state(state);
    if (any)
      metric.merge(part);
    else
      metric = std::move(part);
    any = true;
  }
  return any;
}

/// The state of a streaming metric, as named tensors that are summed or concatenated. Copies are independent,
/// because tensors are never changed in place.
class Accumulator {
 public:
  void reset() { entries_.clear(); }
  std::vector<MetricState> state() const;
  /// Throws DataError for an undefined tensor.
  void load_state(const std::vector<MetricState>& state);

 protected:
  /// Adds `value` to the sum of that name. Throws DataError unless the shapes are the same.
  void sum(std::string_view name, const at::Tensor& value) { add(name, Merging::sum, value); }
  /// Appends `rows` to the tensor of that name. Throws DataError unless the shapes match except for the
  /// number of rows.
  void keep(std::string_view name, const at::Tensor& rows) { add(name, Merging::concatenate, rows); }
  /// The accumulated value of that name; undefined if there is none.
  at::Tensor value(std::string_view name) const;
  void merge_state(const Accumulator& other);

 private:
  struct Entry {
    std::string name;
    Merging merging;
    std::vector<at::Tensor> parts;  ///< only one if the parts are summed
  };

  void add(std::string_view name, Merging merging, const at::Tensor& value);
  static at::Tensor joined(const Entry& entry);

  std::vector<Entry> entries_;
};

/// A mean over the examples that count, as two sums.
class MeanAccumulator : public Accumulator {
 protected:
  /// Adds a sum of values, the number of examples in it, and how many of these have a label or class outside
  /// 0..C-1, if that can happen: one element each, of any dtype.
  void add_to_mean(std::vector<at::Tensor> total_counted_outside);
  /// NaN without examples. Throws DataError, which begins with `metric`, if a label or class is outside
  /// 0..C-1.
  double mean(std::string_view metric) const;
};

}  // namespace etude::inline v0::metrics
