#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "etude/error.hpp"
#include "etude/metrics/metrics.hpp"
#include "etude/trainer_state.hpp"
#include "etude/training_arguments.hpp"

namespace etude {

/// `metric_for_best_model` (the loss, if that is unset) as evaluation spells it: with "eval_" before it.
inline std::string best_metric_name(const TrainingArguments& args) {
  const auto name = args.metric_for_best_model.value_or("loss");
  return name.starts_with("eval_") ? name : "eval_" + name;
}

/// Whether `value` beats `best` in the direction of `greater_is_better`. A tie doesn't, and NaN never does.
inline bool is_better(const TrainingArguments& args, double value, std::optional<double> best) {
  if (std::isnan(value)) return false;
  if (!best || std::isnan(*best)) return true;
  return args.greater_is_better.value_or(false) ? value > *best : value < *best;
}

/// The value of the metric that `metric_for_best_model` names. Throws `MetricError`, which lists the known
/// names, if it is missing.
inline double best_metric(const TrainingArguments& args, const Metrics& metrics) {
  const auto name = best_metric_name(args);
  if (metrics.contains(name)) return metrics.at(name);
  std::vector<std::string_view> known;
  for (const auto& entry : metrics) known.push_back(entry.first);
  throw MetricError(
      fmt::format("metric_for_best_model is '{}', and the evaluation has no '{}': must be one of {}",
                  args.metric_for_best_model.value_or("loss"), name, fmt::join(known, ", ")));
}

/// Takes note of a new best, and says whether it is one. Where nobody chose a metric, one that is missing is
/// none.
inline bool update_best_metric(const TrainingArguments& args, const Metrics& metrics, TrainerState& state) {
  if (!args.metric_for_best_model && !metrics.contains(best_metric_name(args))) return false;
  const double value = best_metric(args, metrics);
  if (!is_better(args, value, state.best_metric)) return false;
  state.best_metric = value;
  state.best_global_step = state.global_step;
  return true;
}

}  // namespace etude
