#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "etude/metrics/eval_prediction.hpp"
#include "etude/metrics/metrics.hpp"
#include "etude/metrics/streaming_metric.hpp"

namespace etude::inline v0::metrics {
namespace detail {

/// Adds `more` to `all`. Throws ArgumentError if `all` already contains one of its names.
void take_in(Metrics& all, const Metrics& more);

/// The entries of `state` whose names begin with "INDEX.", without that prefix.
std::vector<MetricState> state_of(const std::vector<MetricState>& state, std::size_t index);

}  // namespace detail

/// Combines several streaming metrics into one, usable as `compute_metrics` with or without
/// `batch_eval_metrics`: `{.compute_metrics = metrics::streaming(metrics::Accuracy(), metrics::F1())}`. An
/// evaluation then keeps only the predictions that a metric needs. Predictions and labels must be one tensor
/// each.
template <StreamingMetric... Ms>
  requires(sizeof...(Ms) > 0)
class Streaming {
 public:
  Streaming() = default;
  explicit Streaming(Ms... metrics) : metrics_(std::move(metrics)...) {}

  /// Updates all metrics. Their exceptions propagate.
  void update(const at::Tensor& predictions, const at::Tensor& labels) {
    std::apply([&](auto&... each) { (each.update(predictions, labels), ...); }, metrics_);
  }
  /// Throws ArgumentError if two metrics have the same name.
  Metrics compute() const {
    Metrics result;
    std::apply([&](const auto&... each) { (detail::take_in(result, each.compute()), ...); }, metrics_);
    return result;
  }
  void reset() {
    std::apply([](auto&... each) { (each.reset(), ...); }, metrics_);
  }

  /// The names are prefixed with the metric's index: "0.counts".
  std::vector<MetricState> state() const {
    std::vector<MetricState> result;
    for_each_with_index(metrics_, [&](const auto& metric, std::size_t index) {
      for (auto part : metric.state()) {
        part.name = std::to_string(index) + "." + part.name;
        result.push_back(std::move(part));
      }
    });
    return result;
  }
  void load_state(const std::vector<MetricState>& state) {
    for_each_with_index(metrics_, [&](auto& metric, std::size_t index) {
      metric.load_state(detail::state_of(state, index));
    });
  }
  void merge(const Streaming& other) {
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      (std::get<I>(metrics_).merge(std::get<I>(other.metrics_)), ...);
    }
    (std::index_sequence_for<Ms...>());
  }

  /// Adds a batch or a whole evaluation. With `compute_result`, returns the result and resets the state.
  /// Throws DataError unless predictions and labels are one tensor each.
  Metrics operator()(const EvalPrediction& p, bool compute_result = true) {
    if (p.batches.empty()) update(p.predictions.single(), p.label_ids.single());
    for (const auto& batch : p.batches) update(batch.predictions.single(), batch.label_ids.single());
    if (!compute_result) return {};
    const auto all = *this;
    reset();
    return all.compute();
  }

 private:
  template <class Tuple, class F>
  static void for_each_with_index(Tuple& tuple, F f) {
    std::size_t index = 0;
    std::apply([&](auto&... each) { (f(each, index++), ...); }, tuple);
  }

  std::tuple<Ms...> metrics_;
};

template <StreamingMetric... Ms>
Streaming<Ms...> streaming(Ms... metrics) {
  return Streaming<Ms...>(std::move(metrics)...);
}

}  // namespace etude::inline v0::metrics
