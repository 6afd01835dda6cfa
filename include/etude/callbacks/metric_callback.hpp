#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "etude/any_trainer.hpp"
#include "etude/events.hpp"
#include "etude/metrics/metrics.hpp"
#include "etude/metrics/streaming.hpp"
#include "etude/metrics/streaming_metric.hpp"
#include "etude/parallel/merge_metrics.hpp"

namespace etude::inline v0 {

/// Computes metrics during an evaluation or a prediction, on the model's device and independently of
/// `compute_metrics`, and adds them, with the evaluation's prefix ("eval_f1"), to its metrics and log:
/// `Trainer trainer(options, MetricCallback(metrics::F1(), metrics::AUROC()))`. The model's output, without
/// the loss and `ignore_keys`, must be one tensor, and so must the labels. Adds nothing if there are no
/// labels. With several processes, the states of the metrics are merged.
template <metrics::StreamingMetric... Ms>
  requires(sizeof...(Ms) > 0)
class MetricCallback {
 public:
  MetricCallback() = default;
  explicit MetricCallback(Ms... metrics) : metrics_(std::move(metrics)...) {}

  void on(const EvaluateBegin& e) { begin(e.metric_key_prefix); }
  void on(const PredictBegin& e) { begin(e.metric_key_prefix); }

  /// Throws DataError if there are several tensors, or they don't fit the metrics.
  void on(const PredictionStep& e) {
    if (e.batch.labels.empty()) return;
    metrics_.update(e.output.single(), e.batch.labels.single());
    seen_ = true;
  }

  void on(Evaluate& e) { add_to(e, e.metrics); }
  void on(Predict& e) { add_to(e, e.metrics); }

  void on(const EvaluateEnd&) { begin({}); }
  void on(const PredictEnd&) { begin({}); }

 private:
  void begin(std::string_view prefix) {
    prefix_ = prefix;
    metrics_.reset();
    seen_ = is_merged_ = false;
    computed_.reset();
  }

  void add_to(const Context& e, Metrics& metrics) {
    if (!std::exchange(is_merged_, true)) seen_ = merge_metrics(e.trainer.communicator(), metrics_, seen_);
    if (!seen_) return;
    if (!computed_) computed_ = metrics_.compute();
    for (const auto& [name, value] : *computed_) metrics[prefix_ + "_" + name] = value;
  }

  metrics::Streaming<Ms...> metrics_;
  std::string prefix_;
  bool seen_ = false;
  bool is_merged_ = false;
  std::optional<Metrics> computed_;
};

}  // namespace etude::inline v0
