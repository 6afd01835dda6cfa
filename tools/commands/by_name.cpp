#include "by_name.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/functional/loss.h>
#include <etude/etude.hpp>
#include <etude/reflect/key_values.hpp>
#include <etude/reflect/nearest.hpp>

#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <variant>

namespace tool {
namespace {

namespace metrics = etude::metrics;
namespace functional = torch::nn::functional;

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
  throw etude::ArgumentError(fmt::format("compute_metrics has '{}': must be among {}{}", name,
                                         fmt::join(metric_names, ", "),
                                         etude::did_you_mean(name, metric_names)));
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

  etude::Metrics compute() const {
    etude::Metrics all;
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

  etude::Metrics operator()(const etude::EvalPrediction& p, bool compute_result = true) {
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

/// Converts labels for a regression loss: to the output's dtype, and to its shape if they differ only in
/// dimensions of size 1.
torch::Tensor like_output(const torch::Tensor& labels, const torch::Tensor& output) {
  const auto alike = labels.to(output.scalar_type());
  if (labels.dim() != output.dim() && labels.squeeze().sizes() == output.squeeze().sizes())
    return alike.view_as(output);
  return alike;
}

template <class Function>
etude::Loss loss_of_numbers(Function function) {
  return [function](const etude::Tensors& outputs, const torch::Tensor& labels) {
    const auto target = like_output(labels, outputs[0]);
    if (target.sizes() != outputs[0].sizes())
      throw etude::DataError(fmt::format("the output is {}, but the labels are {}: must have the same shape",
                                         etude::describe(outputs[0]), etude::describe(labels)));
    return function(outputs[0], target);
  };
}

torch::Tensor cross_entropy(const etude::Tensors& outputs, const torch::Tensor& labels, double items) {
  const auto& scores = outputs[0];
  if (scores.dim() < 2 ||
      (labels.is_floating_point() ? labels.sizes() != scores.sizes() : labels.dim() + 1 != scores.dim()))
    throw etude::DataError(
        fmt::format("the output is {}, but the labels are {}: cross_entropy takes scores [N, ..., classes] "
                    "and int64 classes [N, ...], or probabilities like the scores",
                    etude::describe(scores), etude::describe(labels)));
  const auto rows = scores.reshape({-1, scores.size(-1)});
  const auto targets =
      labels.is_floating_point() ? labels.reshape_as(rows) : labels.to(torch::kLong).reshape(-1);
  const auto options = functional::CrossEntropyFuncOptions().reduction(torch::kSum);
  return functional::cross_entropy(rows, targets, options) / items;
}

}  // namespace

bool takes_numbers(LossName loss) { return loss != LossName::model && loss != LossName::cross_entropy; }

etude::Loss loss_named(LossName loss) {
  switch (loss) {
    case LossName::model:
      return {};
    case LossName::cross_entropy:
      return cross_entropy;
    case LossName::bce_with_logits:
      return loss_of_numbers(
          [](const auto& a, const auto& b) { return functional::binary_cross_entropy_with_logits(a, b); });
    case LossName::mse:
      return loss_of_numbers([](const auto& a, const auto& b) { return functional::mse_loss(a, b); });
    case LossName::l1:
      return loss_of_numbers([](const auto& a, const auto& b) { return functional::l1_loss(a, b); });
    case LossName::huber:
      return loss_of_numbers([](const auto& a, const auto& b) { return functional::huber_loss(a, b); });
    case LossName::smooth_l1:
      return loss_of_numbers([](const auto& a, const auto& b) { return functional::smooth_l1_loss(a, b); });
  }
  return {};
}

etude::ComputeMetrics metrics_named(const std::vector<std::string>& names, bool shifts_labels) {
  if (names.empty()) return {};
  std::vector<AnyMetric> chosen;
  for (const auto& name : names) chosen.push_back(metric_named(name));
  return ChosenMetrics(std::move(chosen), shifts_labels);
}

std::pair<std::string, nlohmann::json> name_and_options(std::string_view text) {
  const auto colon = text.find(':');
  std::string name(text.substr(0, colon));
  if (colon == text.npos) return {std::move(name), nlohmann::json::object()};
  try {
    return {std::move(name), etude::parse_key_values(text.substr(colon + 1))};
  } catch (const etude::ArgumentError& error) {
    throw etude::ArgumentError(fmt::format("callback is '{}': {}", text, error.what()));
  }
}

}  // namespace tool
