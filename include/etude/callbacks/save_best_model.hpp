#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "etude/callbacks/watched_metric.hpp"
#include "etude/events.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

/// Keeps the weights of the evaluation with the best `watch_metric` in a folder, and loads them into the
/// model when training is complete. Follows pytorch-accelerated's callback of this name. Each evaluation of a
/// training counts. Without `count_intermediate`, as in pytorch-accelerated, evaluations within an epoch,
/// such as StepBasedEvaluationCallback's, don't count. Neither a non-finite value nor a tie is an
/// improvement. Only a model that this run saved is loaded, never one that an earlier run left in the folder.
/// The optimizer and the schedule are not saved: they belong to checkpoints.
///
/// If several callbacks load weights into the model at the end (StochasticWeightAveragingCallback;
/// ModelEmaCallback with `load_at_end`), the last in the list wins. With `load_saved_checkpoint` false, this
/// one loads none.
///
/// The folder is a pretrained model with an additional `best_model.json`, and is replaced as a whole.
///
/// Throws ArgumentError at the beginning of training without an `eval_dataset`, or if the folder contains
/// anything else; MetricError, listing the available names, if no evaluation has `watch_metric`.
struct SaveBestModelCallback {
  ETUDE_STRUCT(
      SaveBestModelCallback,
      (std::string, save_path, "folder for the best model; empty is best_model in output_dir", ""),
      (std::string, watch_metric, "full name of the metric to watch", "eval_loss"),
      (std::optional<bool>, greater_is_better,
       "greater is better; unset: as in the arguments, if it is their metric, else true unless it is "
       "a loss"),
      (bool, reset_on_train, "forget the best model when a new training begins", true),
      (bool, load_saved_checkpoint, "end with the weights of the best evaluation", true),
      (bool, count_intermediate, "evaluations within an epoch also count", true));

  struct State {
    ETUDE_STRUCT(State, (std::optional<double>, best_metric, "watch_metric of the model in the folder"),
                 (std::int64_t, best_global_step, "step at which it was reached", 0),
                 (double, best_metric_epoch, "epoch in which it was reached", 0.0),
                 (WatchedMetric, watched, "whether evaluations have the metric"));
  };
  State state = {};

  /// The metric that a dry run before the first step looks for.
  std::string watched_metric() const { return watch_metric; }
  bool reads_parameters() const { return true; }

  void on(const TrainBegin& e);
  void on(const StepBegin&) { state.watched.throw_if_missing(watch_metric); }
  void on(const EvaluateAll& e);
  void on(const TrainError&) { state.watched.fail(); }
  void on(const TrainEnd& e);

  std::string folder = {};  ///< `save_path`, completed from the arguments.
  bool has_saved = false;   ///< The folder contains the model of `best_metric`.
};

}  // namespace etude::inline v0
