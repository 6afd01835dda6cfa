#pragma once

#include <optional>
#include <string>

#include "etude/metrics/metrics.hpp"
#include "etude/trainer_state.hpp"
#include "etude/training_arguments.hpp"

namespace etude {

/// `metric_for_best_model` (the loss, if that is unset) as evaluation spells it: with "eval_" before it.
std::string best_metric_name(const TrainingArguments& args);

/// Whether `value` beats `best` in the direction of `greater_is_better`. A tie doesn't, and NaN never does.
bool is_better(const TrainingArguments& args, double value, std::optional<double> best);

/// The value of the metric that `metric_for_best_model` names. Throws `MetricError`, which lists the known
/// names, if it is missing.
double best_metric(const TrainingArguments& args, const Metrics& metrics);

/// Takes note of a new best, and says whether it is one. Where nobody chose a metric, one that is missing is
/// none.
bool update_best_metric(const TrainingArguments& args, const Metrics& metrics, TrainerState& state);

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/metrics/impl/best_model.ipp"
#endif
