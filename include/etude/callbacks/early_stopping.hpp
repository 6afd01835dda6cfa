#pragma once

#include <cstdint>
#include <optional>

#include "etude/events.hpp"
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

  void on(const TrainBegin& e);

  void on(const StepBegin& e);

  void on(const Evaluate& e);

 private:
  bool improves(const Context& e, double value) const;

  void stop_when_patience_is_out(const Context& e) const;
};

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/callbacks/early_stopping-inl.hpp"
#endif
