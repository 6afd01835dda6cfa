#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>

#include "etude/callbacks/watched_metric.hpp"
#include "etude/events.hpp"
#include "etude/reflect/enum.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

/// The value that an evaluation must beat by more than `early_stopping_threshold` to count as an improvement:
///
/// - `each_evaluation`: the best value so far. Any gain updates it, so gains within the threshold don't add
/// up. This is `early_stopping_threshold` in Hugging Face's callback.
/// - `cumulative`: the last evaluation that counted as an improvement, so small gains add up until they
/// count. This is `min_delta` in Keras and PyTorch Lightning, and in Ignite with `cumulative_delta`.
ETUDE_ENUM(EarlyStoppingThreshold, each_evaluation, cumulative);

/// Stops training when a metric (`args.metric_for_best_model`, or `watch_metric`) has not improved in
/// `early_stopping_patience` consecutive evaluations. Follows Hugging Face's callback of this name;
/// `early_stopping_threshold_kind` offers the other usual meaning of a threshold, and `watch_metric` comes
/// from pytorch-accelerated. Neither a tie nor NaN is an improvement. A run that is resumed after it was due
/// to stop stops again before its first step.
///
/// Evaluations may come from `args.eval_strategy` or from other callbacks, and all of the training's
/// evaluations count. Without `count_intermediate`, as in pytorch-accelerated, evaluations within an epoch,
/// such as StepBasedEvaluationCallback's, don't count. Warns when training begins with neither an
/// `eval_strategy` nor that callback, and when training ends without an evaluation that counts.
///
/// Throws ArgumentError at the beginning of training without an `eval_dataset`, or for numbers out of range;
/// MetricError, listing the available names, if no evaluation has the metric.
struct EarlyStoppingCallback {
  ETUDE_STRUCT(
      EarlyStoppingCallback,
      (std::int64_t, early_stopping_patience,
       "evaluations without improvement before training stops" | at_least(1), 1),
      (double, early_stopping_threshold,
       "how much better an evaluation must be to count" | at_least(0).or_just(INFINITY), 0.0),
      (EarlyStoppingThreshold, early_stopping_threshold_kind,
       "what an evaluation must beat: the best before it (each_evaluation), or the last that counted "
       "(cumulative)",
       EarlyStoppingThreshold::each_evaluation),
      (std::string, watch_metric, "full name of the metric to watch; empty is metric_for_best_model", ""),
      (std::optional<bool>, greater_is_better,
       "greater is better; unset: as in the arguments, if it is their metric, else true unless it is a loss"),
      (bool, count_intermediate, "evaluations within an epoch also count", true));

  struct State {
    ETUDE_STRUCT(State,
                 (std::int64_t, early_stopping_patience_counter, "evaluations since the last improvement", 0),
                 (std::optional<double>, last_improvement, "the metric of the last improvement"),
                 (std::optional<double>, best, "the best so far, if it isn't the arguments' metric"),
                 (WatchedMetric, watched, "whether evaluations have the metric"));
  };
  State state = {};

  /// The metric that a dry run before the first step looks for.
  std::string watched_metric() const { return watch_metric; }

  void on(const TrainBegin& e);
  void on(const StepBegin& e) { throw_if_missing(e); }
  void on(const EvaluateAll& e);
  void on(const TrainError&) { state.watched.fail(); }
  void on(const TrainEnd& e);

 private:
  std::string metric(const Context& e) const;
  void throw_if_missing(const Context& e) const;
  bool is_out_of_patience() const { return state.early_stopping_patience_counter >= early_stopping_patience; }
  void stop_when_patience_is_out(const Context& e) const;
};

}  // namespace etude::inline v0
