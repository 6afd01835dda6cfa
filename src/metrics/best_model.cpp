#include "etude/metrics/best_model.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "etude/base/error.hpp"
#include "etude/metrics/speed.hpp"
#include "etude/reflect/nearest.hpp"

namespace etude::inline v0 {

std::string best_metric_name(const TrainingArguments& args) {
  const auto name = args.metric_for_best_model.value_or("loss");
  return name.starts_with("eval_") ? name : "eval_" + name;
}

bool beats(double value, std::optional<double> best, bool greater_is_better, double margin) {
  if (std::isnan(value)) return false;
  if (!best || std::isnan(*best)) return true;
  return (greater_is_better ? value - *best : *best - value) > margin;
}

std::vector<std::string_view> names_to_offer(const Metrics& metrics) {
  std::vector<std::string_view> all, chosen;
  for (const auto& [name, value] : metrics) {
    if (name == "epoch") continue;
    all.push_back(name);
    if (!is_speed(name)) chosen.push_back(name);
  }
  return chosen.empty() ? all : chosen;
}

double best_metric(const TrainingArguments& args, const Metrics& metrics) {
  const auto name = best_metric_name(args);
  if (metrics.contains(name)) return metrics.at(name);
  const auto known = names_to_offer(metrics);
  throw MetricError(fmt::format(
      "metric_for_best_model is '{}', and the evaluation has no '{}': {}",
      args.metric_for_best_model.value_or("loss"), name,
      known.empty() ? "it has no metrics at all: a callback must have removed them"
                    : fmt::format("must be one of {}{}", fmt::join(known, ", "), did_you_mean(name, known))));
}

bool update_best_metric(const TrainingArguments& args, const Metrics& metrics, TrainerState& state) {
  if (!args.metric_for_best_model && !metrics.contains(best_metric_name(args))) return false;
  const double value = best_metric(args, metrics);
  if (!beats(value, state.best_metric, is_greater_better(args))) return false;
  state.best_metric = value;
  state.best_global_step = state.global_step;
  return true;
}

}  // namespace etude::inline v0
