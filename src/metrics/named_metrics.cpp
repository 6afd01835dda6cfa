#include "etude/metrics/named_metrics.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstddef>
#include <utility>
#include <variant>

#include "etude/base/error.hpp"
#include "etude/metrics/accuracy.hpp"
#include "etude/metrics/auroc.hpp"
#include "etude/metrics/average_precision.hpp"
#include "etude/metrics/calibration_error.hpp"
#include "etude/metrics/f_beta.hpp"
#include "etude/metrics/mean_absolute_error.hpp"
#include "etude/metrics/mean_squared_error.hpp"
#include "etude/metrics/perplexity.hpp"
#include "etude/metrics/r2_score.hpp"
#include "etude/metrics/streaming.hpp"
#include "etude/reflect/nearest.hpp"

namespace etude::inline v0 {

namespace {

using AnyMetric =
    std::variant<metrics::Accuracy, metrics::Precision, metrics::Recall, metrics::F1, metrics::AUROC,
                 metrics::AveragePrecision, metrics::CalibrationError, metrics::Perplexity,
                 metrics::MeanAbsoluteError, metrics::MeanSquaredError, metrics::R2Score>;

AnyMetric metric_named(const std::string& name) {
  if (name == "accuracy") return metrics::Accuracy();
  if (name == "top_5_accuracy") return metrics::Accuracy({.top_k = 5});
  if (name == "precision") return metrics::Precision();
  if (name == "recall") return metrics::Recall();
  if (name == "f1") return metrics::F1();
  if (name == "auroc") return metrics::AUROC();
  if (name == "average_precision") return metrics::AveragePrecision();
  if (name == "calibration_error") return metrics::CalibrationError();
  if (name == "perplexity") return metrics::Perplexity();
  if (name == "mae") return metrics::MeanAbsoluteError();
  if (name == "mse") return metrics::MeanSquaredError();
  if (name == "r2") return metrics::R2Score();
  throw ArgumentError(fmt::format("compute_metrics has '{}': must be among {}{}", name,
                                  fmt::join(known_metrics, ", "), did_you_mean(name, known_metrics)));
}

/// Like metrics::Streaming, but for metrics that are chosen at run time.
class ChosenMetrics {
 public:
  ChosenMetrics(std::vector<AnyMetric> chosen, bool shifts_labels)
      : metrics_(std::move(chosen)), shifts_labels_(shifts_labels) {}

  void update(const torch::Tensor& predictions, const torch::Tensor& labels) {
    const auto length = labels.dim() > 1 ? labels.size(1) : 0;
    const bool shifts = shifts_labels_ && length > 0 && predictions.dim() > 2;
    for (auto& metric : metrics_)
      std::visit(
          [&](auto& each) {
            shifts ? each.update(predictions.narrow(1, 0, length - 1), labels.narrow(1, 1, length - 1))
                   : each.update(predictions, labels);
          },
          metric);
  }

  Metrics compute() const {
    Metrics all;
    for (const auto& metric : metrics_)
      all.update(std::visit([](const auto& each) { return each.compute(); }, metric));
    return all;
  }

  void reset() {
    for (auto& metric : metrics_) std::visit([](auto& each) { each.reset(); }, metric);
  }

  std::vector<metrics::MetricState> state() const {
    std::vector<metrics::MetricState> all;
    for (std::size_t i = 0; i < metrics_.size(); ++i)
      for (auto part : std::visit([](const auto& each) { return each.state(); }, metrics_[i])) {
        part.name = fmt::format("{}.{}", i, part.name);
        all.push_back(std::move(part));
      }
    return all;
  }

  void load_state(const std::vector<metrics::MetricState>& state) {
    for (std::size_t i = 0; i < metrics_.size(); ++i)
      std::visit([&](auto& each) { each.load_state(metrics::detail::state_of(state, i)); }, metrics_[i]);
  }

  void merge(const ChosenMetrics& other) {
    for (std::size_t i = 0; i < metrics_.size(); ++i)
      std::visit([&]<class Metric>(Metric& each) { each.merge(std::get<Metric>(other.metrics_[i])); },
                 metrics_[i]);
  }

  Metrics operator()(const EvalPrediction& p, bool compute_result = true) {
    if (p.batches.empty()) update(p.predictions[0], p.label_ids.single());
    for (const auto& batch : p.batches) update(batch.predictions[0], batch.label_ids.single());
    if (!compute_result) return {};
    const auto result = compute();
    reset();
    return result;
  }

 private:
  std::vector<AnyMetric> metrics_;
  bool shifts_labels_;
};

}  // namespace

ComputeMetrics named_metrics(const std::vector<std::string>& names, bool shifts_labels) {
  if (names.empty()) return {};
  std::vector<AnyMetric> chosen;
  for (const auto& name : names) chosen.push_back(metric_named(name));
  return ChosenMetrics(std::move(chosen), shifts_labels);
}

}  // namespace etude::inline v0
