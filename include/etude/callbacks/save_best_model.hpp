#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "etude/callbacks/watched_metric.hpp"
#include "etude/events.hpp"
#include "etude/reflect/struct.hpp"

namespace etude {

/// Keeps the weights of the evaluation with the best `watch_metric` in a folder, and puts them into the model
/// when training has come to its end. Follows pytorch-accelerated's callback of this name. Each evaluation of
/// a training counts; without `count_intermediate`, as in pytorch-accelerated, those in the steps of an epoch
/// don't, such as StepBasedEvaluationCallback's. A value that isn't finite is never the best, a tie is no
/// gain. What is loaded is what this run has saved: never what an earlier one has left in the folder.
/// Optimizer and schedule are not saved: they belong to checkpoints.
///
/// Of several callbacks that put weights into the model at the end (StochasticWeightAveragingCallback;
/// ModelEmaCallback with `load_at_end`) the last in the list decides: with `load_saved_checkpoint` false this
/// one leaves it to the others.
///
/// The folder is that of a pretrained model, with `best_model.json`, and is replaced as a whole.
///
/// Throws ArgumentError where training begins if there is no `eval_dataset`, or the folder holds something
/// else; MetricError, which lists the names that there are, if no evaluation has `watch_metric`.
struct SaveBestModelCallback {
  using this_callback = SaveBestModelCallback;
  ETUDE_STRUCT(SaveBestModelCallback,
               (std::string, save_path, "folder for the best model; empty is best_model in output_dir", ""),
               (std::string, watch_metric, "the metric that decides, by its whole name", "eval_loss"),
               (bool, greater_is_better, "the best has the greatest watch_metric", false),
               (bool, reset_on_train, "forget the best of the training before where another begins", true),
               (bool, load_saved_checkpoint, "end with the weights of the best evaluation", true),
               (bool, count_intermediate, "evaluations in an epoch's steps count, too", true),
               (std::optional<double>, best_metric, "watch_metric of the model in the folder"),
               (std::int64_t, best_global_step, "the step at which it was reached", 0),
               (double, best_metric_epoch, "the epoch in which it was reached", 0.0),
               (WatchedMetric, watched, "whether evaluations have it"));

  /// The metric that a dry run before the first step looks for.
  std::string watched_metric() const { return watch_metric; }

  void on(const TrainBegin& e);
  void on(const StepBegin&) { watched.throw_if_missing(watch_metric); }
  void on(const EvaluateAll& e);
  void on(const TrainError&) { watched.fail(); }
  void on(const TrainEnd& e);

  std::string folder = {};  ///< `save_path`, as the arguments complete it.
  bool has_saved = false;   ///< The folder has the model of `best_metric`.
};

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/callbacks/impl/save_best_model.ipp"
#endif
