#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstdint>

#include "etude/error.hpp"
#include "etude/events.hpp"
#include "etude/metrics/best_model.hpp"
#include "etude/reflect/struct.hpp"

namespace etude {

/// Stops training when `args.metric_for_best_model` has not improved in `early_stopping_patience` evaluations
/// running. Follows Hugging Face's callback of this name: an evaluation counts as an improvement when it
/// beats the best of all before by more than `early_stopping_threshold`; the best itself moves with any gain,
/// so gains that are each below the threshold don't add up. NaN is no improvement.
struct EarlyStoppingCallback {
  ETUDE_STRUCT(EarlyStoppingCallback,
               (std::int64_t, early_stopping_patience,
                "evaluations without improvement before training stops", 1),
               (double, early_stopping_threshold, "how much better an evaluation must be to count", 0.0),
               (std::int64_t, early_stopping_patience_counter, "evaluations since the last improvement", 0));

  bool found_metric = false;    ///< Some evaluation had the metric that it watches.
  bool missing_metric = false;  ///< Some evaluation didn't.

  void on(const TrainBegin& e) {
    if (early_stopping_patience < 1)
      throw ArgumentError(
          fmt::format("early_stopping_patience is {}: must be at least 1", early_stopping_patience));
    if (!(early_stopping_threshold >= 0))
      throw ArgumentError(
          fmt::format("early_stopping_threshold is {}: must be at least 0", early_stopping_threshold));
    if (e.args.eval_strategy == IntervalStrategy::no)
      throw ArgumentError("eval_strategy is no: EarlyStoppingCallback needs evaluations, by steps or epoch");
    if (e.state.global_step == 0) early_stopping_patience_counter = 0;
  }

  void on(const StepBegin& e) {
    if (missing_metric && !found_metric)
      throw MetricError(
          fmt::format("no evaluation has a metric '{}' for EarlyStoppingCallback to watch: set "
                      "metric_for_best_model to one that an evaluation has",
                      best_metric_name(e.args)));
  }

  void on(const Evaluate& e) {
    const auto name = best_metric_name(e.args);
    const auto found = e.metrics.find(name);
    if (found == e.metrics.end()) {  // Another of several datasets may have it.
      missing_metric = true;
      return;
    }
    found_metric = true;
    const bool improved =
        is_better(e.args, found->second, e.state.best_metric) &&
        (!e.state.best_metric || std::abs(found->second - *e.state.best_metric) > early_stopping_threshold);
    early_stopping_patience_counter = improved ? 0 : early_stopping_patience_counter + 1;
    if (early_stopping_patience_counter >= early_stopping_patience)
      e.control.request_stop(
          fmt::format("{} has not improved in {} evaluations", name, early_stopping_patience));
  }
};

}  // namespace etude
