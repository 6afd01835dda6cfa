#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "etude/events.hpp"
#include "etude/metrics/metrics.hpp"
#include "etude/reflect/struct.hpp"

namespace etude {

/// Whether `value` beats `best`. A tie doesn't, and what isn't finite never does.
bool is_better(double value, std::optional<double> best, bool greater_is_better);

/// Looks for a metric in the evaluations of a training, for callbacks that have one among their members: no
/// evaluation needs to have it, as long as one of them does.
struct WatchedMetric {
  ETUDE_STRUCT(WatchedMetric, (bool, found, "some evaluation had the metric", false),
               (std::string, others, "what evaluations without it had", ""));

  /// Where training begins; a new one forgets the evaluations before. Warns a person who trains with
  /// `callback` but has asked for no evaluations: neither by `eval_strategy` nor by
  /// StepBasedEvaluationCallback.
  void begin(const Context& e, bool is_new, std::string_view callback);

  /// Whether an evaluation is one of a training, and counts.
  template <class Evaluation>
  bool counts(const Evaluation& e, bool count_intermediate) const {
    return is_running && (count_intermediate || !e.is_intermediate);
  }

  void fail() { has_failed = true; }  ///< at TrainError

  /// At TrainEnd: whether it is the end of a training that went well.
  bool end() { return std::exchange(is_running, false) && !has_failed; }

  /// Its value, if these metrics of an evaluation have it.
  std::optional<double> look(const std::string& name, const Metrics& metrics);

  /// Throws MetricError, which lists the names that there are, if there were evaluations and none had it.
  /// `option` is what names the metric.
  void throw_if_missing(const std::string& name, std::string_view option = "watch_metric") const;

  bool is_running = false;
  bool has_failed = false;
};

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/callbacks/impl/watched_metric.ipp"
#endif
