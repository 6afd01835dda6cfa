#pragma once

#include <ATen/core/Tensor.h>

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/metrics/metrics.hpp"

namespace etude::metrics {

/// How a part of a metric's state goes together with that of another process: added element by element, or
/// put behind it along the first dimension.
enum class Merging { sum, concatenate };

/// A part of what a metric has come to.
struct MetricState {
  std::string name;
  at::Tensor value;
  Merging merging;
};

/// Adds up batches on the device that they are on, without reading anything back before `compute()`. Batches
/// may have any sizes; the state of several processes merges into that of the whole. A metric that has seen
/// nothing has no state.
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

/// The state of a streaming metric: named tensors that are summed or concatenated. Copies share no state,
/// since no tensor is ever changed in place.
class Accumulator {
 public:
  void reset() { entries_.clear(); }
  std::vector<MetricState> state() const;
  /// Throws DataError for an undefined tensor.
  void load_state(const std::vector<MetricState>& state);

 protected:
  /// Adds to the sum of that name. Throws DataError unless all have one shape.
  void sum(std::string_view name, const at::Tensor& value) { add(name, Merging::sum, value); }
  /// Puts rows behind those of that name. Throws DataError unless all have one shape but for their number.
  void keep(std::string_view name, const at::Tensor& rows) { add(name, Merging::concatenate, rows); }
  /// What has come together under that name; undefined if nothing has.
  at::Tensor value(std::string_view name) const;
  void merge_state(const Accumulator& other);

 private:
  struct Entry {
    std::string name;
    Merging merging;
    std::vector<at::Tensor> parts;  ///< One if they are summed.
  };

  void add(std::string_view name, Merging merging, const at::Tensor& value);
  static at::Tensor joined(const Entry& entry);

  std::vector<Entry> entries_;
};

}  // namespace etude::metrics

#ifndef ETUDE_COMPILED
#include "etude/metrics/impl/streaming_metric.ipp"
#endif
