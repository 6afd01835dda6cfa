#pragma once

#include <concepts>
#include <functional>
#include <type_traits>
#include <utility>
#include <vector>

#include "etude/data/tensors.hpp"
#include "etude/metrics/metrics.hpp"
#include "etude/metrics/streaming_metric.hpp"

namespace etude::inline v0 {

/// The argument of `compute_metrics`: the whole evaluation, with examples along the first dimension, on the
/// CPU. If sequence lengths differ, shorter ones are right-padded with -100.
struct EvalPrediction {
  Tensors predictions;  ///< The model's outputs without the loss and `ignore_keys`, or the result of
                        ///< `preprocess_logits_for_metrics`.
  Tensors label_ids;
  Tensors inputs;     ///< Set if `include_for_metrics` contains "inputs".
  at::Tensor losses;  ///< float32 [examples]; set if `include_for_metrics` contains "loss".
  /// The separate batches, if `eval_do_concat_batches = false`; then the fields above are empty.
  std::vector<EvalPrediction> batches;
};

/// Computes the metrics of an evaluation; their names get the evaluation's prefix. With `batch_eval_metrics`
/// it must take a second argument, `bool compute_result`: it is called for each batch, with true for the last
/// one, and only that result counts. A callable that can be called both ways works in both cases. If it has a
/// `void reset()`, that is called at the start of each evaluation, since the previous one may have been
/// aborted. With several processes, a StreamingMetric gets only the batches of its process, and the states
/// are merged; any other callable gets the batches of all processes.
class ComputeMetrics {
 public:
  ComputeMetrics() = default;

  template <class F>
    requires(!std::same_as<std::remove_cvref_t<F>, ComputeMetrics>)
  ComputeMetrics(F function)
      : takes_whole_(std::is_invocable_r_v<Metrics, F&, const EvalPrediction&>),
        takes_compute_result_(std::is_invocable_r_v<Metrics, F&, const EvalPrediction&, bool>) {
    static_assert(
        std::is_invocable_r_v<Metrics, F&, const EvalPrediction&> ||
            std::is_invocable_r_v<Metrics, F&, const EvalPrediction&, bool>,
        "compute_metrics must be Metrics(const EvalPrediction&) or Metrics(const EvalPrediction&, bool)");
    merges_ = metrics::StreamingMetric<F>;
    call_ = [function = std::move(function)](const Call& call) mutable -> Metrics {
      if constexpr (metrics::StreamingMetric<F>) {
        if (call.states) return metrics::load_merged(function, *call.states) ? function.compute() : Metrics();
        if (call.state) {
          *call.state = function.state();
          return {};
        }
      }
      const auto* p = call.prediction;
      if (!p) {
        if constexpr (requires {
                        { function.reset() } -> std::same_as<void>;
                      })
          function.reset();
        return {};
      }
      if constexpr (std::is_invocable_r_v<Metrics, F&, const EvalPrediction&, bool>)
        return function(*p, call.compute_result);
      else
        return function(*p);
    };
  }

  explicit operator bool() const { return static_cast<bool>(call_); }
  bool takes_whole() const { return takes_whole_; }
  bool takes_compute_result() const { return takes_compute_result_; }
  /// True if the callable is a StreamingMetric.
  bool merges() const { return merges_; }

  /// Called at the start of an evaluation.
  void begin() const {
    if (call_) call_({});
  }
  Metrics operator()(const EvalPrediction& prediction, bool compute_result = true) const {
    return call_({.prediction = &prediction, .compute_result = compute_result});
  }

  /// The state of a StreamingMetric.
  std::vector<metrics::MetricState> state() const {
    std::vector<metrics::MetricState> result;
    call_({.state = &result});
    return result;
  }
  /// The result of a StreamingMetric with all these states merged; empty if there are none.
  Metrics merged(const std::vector<std::vector<metrics::MetricState>>& states) const {
    return call_({.states = &states});
  }

 private:
  struct Call {
    const EvalPrediction* prediction = nullptr;  ///< null at the start of an evaluation
    bool compute_result = false;
    std::vector<metrics::MetricState>* state = nullptr;
    const std::vector<std::vector<metrics::MetricState>>* states = nullptr;
  };

  std::function<Metrics(const Call&)> call_;
  bool takes_whole_ = true;
  bool takes_compute_result_ = false;
  bool merges_ = false;
};

}  // namespace etude::inline v0
