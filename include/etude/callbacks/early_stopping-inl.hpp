#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>

#include "etude/callbacks/early_stopping.hpp"
#include "etude/error.hpp"
#include "etude/events.hpp"
#include "etude/linkage.hpp"
#include "etude/metrics/best_model.hpp"
#include "etude/reflect/enum.hpp"
#include "etude/reflect/struct.hpp"

namespace etude {

ETUDE_INLINE void EarlyStoppingCallback::on(const TrainBegin& e) {
  if (early_stopping_patience < 1)
    throw ArgumentError(
        fmt::format("early_stopping_patience is {}: must be at least 1", early_stopping_patience));
  if (!(early_stopping_threshold >= 0))
    throw ArgumentError(
        fmt::format("early_stopping_threshold is {}: must be at least 0", early_stopping_threshold));
  if (e.args.eval_strategy == IntervalStrategy::no)
    throw ArgumentError("eval_strategy is no: EarlyStoppingCallback needs evaluations, by steps or epoch");
  if (e.state.log_history.empty()) {
    early_stopping_patience_counter = 0;
    last_improvement.reset();
    found_metric = missing_metric = false;
  }
  stop_when_patience_is_out(e);
}

ETUDE_INLINE void EarlyStoppingCallback::on(const StepBegin& e) {
  if (missing_metric && !found_metric)
    throw MetricError(
        fmt::format("no evaluation has a metric '{}' for EarlyStoppingCallback to watch: set "
                    "metric_for_best_model to one that an evaluation has",
                    best_metric_name(e.args)));
}

ETUDE_INLINE void EarlyStoppingCallback::on(const Evaluate& e) {
  const auto found = e.metrics.find(best_metric_name(e.args));
  if (found == e.metrics.end()) {  // Another of several datasets may have it.
    missing_metric = true;
    return;
  }
  found_metric = true;
  if (improves(e, found->second)) {
    early_stopping_patience_counter = 0;
    last_improvement = found->second;
  } else {
    ++early_stopping_patience_counter;
  }
  stop_when_patience_is_out(e);
}

ETUDE_INLINE bool EarlyStoppingCallback::improves(const Context& e, double value) const {
  const std::optional<double>& bar = early_stopping_threshold_kind == EarlyStoppingThreshold::cumulative
                                         ? last_improvement
                                         : e.state.best_metric;
  return is_better(e.args, value, bar) && (!bar || std::abs(value - *bar) > early_stopping_threshold);
}

ETUDE_INLINE void EarlyStoppingCallback::stop_when_patience_is_out(const Context& e) const {
  if (early_stopping_patience_counter >= early_stopping_patience)
    e.control.request_stop(fmt::format("{} has not improved in {} evaluations", best_metric_name(e.args),
                                       early_stopping_patience));
}

}  // namespace etude
