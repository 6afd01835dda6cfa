#pragma once

#include "etude/loop/event_source.hpp"

namespace etude::inline v0 {

/// Detects a mistyped `metric_for_best_model` before the first step, and likewise a metric that a callback
/// waits for (the result of its method `std::string watched_metric() const`). Throws MetricError, listing the
/// available metrics, if an evaluation lacks a requested one: the first batch of each dataset is evaluated
/// without events, and everything is restored afterwards. Does nothing if that would prove nothing, since
/// callbacks may add metrics.
void check_metric_names(EventSource& events);

}  // namespace etude::inline v0
