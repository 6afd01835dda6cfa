#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "etude/metrics/metrics.hpp"
#include "etude/trainer_state.hpp"
#include "etude/training_arguments.hpp"

namespace etude::inline v0 {

/// `metric_for_best_model` (the loss, if unset) with the prefix "eval_".
std::string best_metric_name(const TrainingArguments& args);

/// True if `value` is better than `best` by more than `margin`. NaN never is; any number is better than
/// nothing and than NaN.
bool beats(double value, std::optional<double> best, bool greater_is_better, double margin = 0);

/// The names of the metrics to suggest in messages: all but `epoch`, times and speeds; times and speeds too
/// if nothing else is left.
std::vector<std::string_view> names_to_offer(const Metrics& metrics);

/// The value of the metric named by `metric_for_best_model`. Throws `MetricError` that lists the known names
/// if it is missing.
double best_metric(const TrainingArguments& args, const Metrics& metrics);

/// Updates the best metric in `state` and returns whether it improved. If no metric was chosen explicitly, a
/// missing one doesn't count as an improvement.
bool update_best_metric(const TrainingArguments& args, const Metrics& metrics, TrainerState& state);

}  // namespace etude::inline v0
