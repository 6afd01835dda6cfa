#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>

#include "etude/error.hpp"
#include "etude/events.hpp"
#include "etude/metrics/best_model.hpp"
#include "etude/reflect/enum.hpp"
#include "etude/reflect/struct.hpp"

namespace etude {

/// What an evaluation must beat by more than `early_stopping_threshold` to count as an improvement:
///
/// - `each_evaluation`: the best of all evaluations before, which any gain moves. Gains that are each within
///   the threshold don't add up. This is `early_stopping_threshold` of Hugging Face's callback.
/// - `cumulative`: the last evaluation that counted as an improvement. Small gains add up until they count.
///   This is `min_delta` of Keras and PyTorch Lightning, and of Ignite with its `cumulative_delta`.
ETUDE_ENUM(EarlyStoppingThreshold, each_evaluation, cumulative);

/// Stops training when `args.metric_for_best_model` has not improved in `early_stopping_patience` evaluations
/// running. Follows Hugging Face's callback of this name; `early_stopping_threshold_kind` offers the other
/// meaning that a threshold has elsewhere. A tie is no improvement, and neither is NaN. A run that is resumed
/// after it was to stop stops again before its first step.
struct EarlyStoppingCallback {
  ETUDE_STRUCT(EarlyStoppingCallback,
               (std::int64_t, early_stopping_patience,
                "evaluations without improvement before training stops", 1),
               (double, early_stopping_threshold, "how much better an evaluation must be to count", 0.0),
               (EarlyStoppingThreshold, early_stopping_threshold_kind,
                "better than the best of each_evaluation before, or cumulative: than the last that counted",
                EarlyStoppingThreshold::each_evaluation),
               (std::int64_t, early_stopping_patience_counter, "evaluations since the last improvement", 0),
               (std::optional<double>, last_improvement, "the metric of the last improvement"),
               (bool, found_metric, "some evaluation had the metric that it watches", false),
               (bool, missing_metric, "some evaluation didn't", false));

  void on(const TrainBegin& e) {
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

  void on(const StepBegin& e) {
    if (missing_metric && !found_metric)
      throw MetricError(
          fmt::format("no evaluation has a metric '{}' for EarlyStoppingCallback to watch: set "
                      "metric_for_best_model to one that an evaluation has",
                      best_metric_name(e.args)));
  }

  void on(const Evaluate& e) {
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

 private:
  bool improves(const Context& e, double value) const {
    const std::optional<double>& bar = early_stopping_threshold_kind == EarlyStoppingThreshold::cumulative
                                           ? last_improvement
                                           : e.state.best_metric;
    return is_better(e.args, value, bar) && (!bar || std::abs(value - *bar) > early_stopping_threshold);
  }

  void stop_when_patience_is_out(const Context& e) const {
    if (early_stopping_patience_counter >= early_stopping_patience)
      e.control.request_stop(fmt::format("{} has not improved in {} evaluations", best_metric_name(e.args),
                                         early_stopping_patience));
  }
};

}  // namespace etude
