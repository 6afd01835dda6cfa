#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "etude/events.hpp"
#include "etude/metrics/metrics.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

/// Whether `value` is better than `best`. A tie isn't, and a non-finite value never is.
bool is_better(double value, std::optional<double> best, bool greater_is_better);

/// Whether greater values of the metric with this full name are better. Returns `given` if it is set; else
/// the setting in `args`, if this is the metric for the best model; else true unless the metric is a loss.
bool is_greater_better(const TrainingArguments& args, std::string_view metric, std::optional<bool> given);

/// A member of a callback that looks for a metric in a training's evaluations. Not every evaluation needs to
/// have the metric, but at least one must.
struct WatchedMetric {
  ETUDE_STRUCT(WatchedMetric, (bool, found, "an evaluation had the metric", false),
               (std::string, others, "metrics of evaluations without it", ""));

  /// Called when training begins; a new training forgets earlier evaluations. Warns, naming `callback`, if
  /// neither `eval_strategy` nor a StepBasedEvaluationCallback causes evaluations.
  void begin(const Context& e, bool is_new, std::string_view callback);

  /// Whether an evaluation is part of a training and counts.
  template <class Evaluation>
  bool counts(const Evaluation& e, bool count_intermediate) const {
    return is_running && (count_intermediate || !e.is_intermediate);
  }

  void fail() { has_failed = true; }  ///< at TrainError

  /// Called at TrainEnd. Returns true if a training ended without errors.
  bool end() { return std::exchange(is_running, false) && !has_failed; }

  /// Returns the metric's value if it is among these metrics of an evaluation.
  std::optional<double> look(const std::string& name, const Metrics& metrics);

  /// Throws MetricError, listing the available names, if there were evaluations and none had it. `option` is
  /// the name of the option that holds the metric's name.
  void throw_if_missing(const std::string& name, std::string_view option = "watch_metric") const;

  bool is_running = false;
  bool has_failed = false;
};

}  // namespace etude::inline v0
