#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "etude/events.hpp"
#include "etude/metrics/metrics.hpp"
#include "etude/reflect/struct.hpp"

namespace etude {

/// Warns a person who trains with `callback`, which watches evaluations, but has asked for none: neither by
/// `eval_strategy` nor by StepBasedEvaluationCallback.
void warn_without_evaluations(const Context& e, std::string_view callback);

/// Looks for a metric in evaluations, for callbacks that have one among their members: no evaluation needs to
/// have it, as long as one of them does.
struct WatchedMetric {
  ETUDE_STRUCT(WatchedMetric, (bool, found, "some evaluation had the metric", false),
               (std::string, others, "what evaluations without it had", ""));

  /// Its value, if these metrics of an evaluation have it.
  std::optional<double> look(const std::string& name, const Metrics& metrics);

  /// Throws MetricError, which lists the names that there are, if there were evaluations and none had it.
  /// `option` is what names the metric.
  void throw_if_missing(const std::string& name, std::string_view option = "watch_metric") const;
};

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/callbacks/impl/watched_metric.ipp"
#endif
