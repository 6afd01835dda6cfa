#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "etude/callbacks/interval_timer.hpp"
#include "etude/events.hpp"
#include "etude/model/model.hpp"
#include "etude/optim/averaged_weights.hpp"
#include "etude/reflect/interval.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

/// Keeps an exponential moving average of the model's weights, updated after each step of the optimizer:
/// average = decay * average + (1 - decay) * weights. Follows pytorch-accelerated's callback of this name,
/// whose average is updated only once per epoch. The warm-up, `min(decay, (1 + n) / (10 + n))` after n
/// updates, follows TensorFlow and timm. Buffers are averaged as in PyTorch Lightning's EMAWeightAveraging.
///
/// After each evaluation during training, the average is put into the model and evaluated too. The metrics
/// and events of that second evaluation have the prefix `ema_model_eval` (`ema_model_eval_loss`), which other
/// callbacks see as well. With `save_path`, the best average is saved there or, without evaluations, the
/// average after the last epoch. Without `count_intermediate`, an average evaluated within an epoch is never
/// the best. `metric_for_best_model` can't be one of these metrics, because they come too late;
/// `watch_metric` selects the best average. Checkpoints contain the average as `ema_model.safetensors`, and a
/// resumed run restores it exactly; the trainer still saves the trained weights. If several callbacks load
/// weights into the model at the end, as this one does with `load_at_end`, the last in the list wins.
///
/// Throws ArgumentError at the beginning of training for a value out of range, such as a decay outside [0,
/// 1], MetricError if an evaluation has no `watch_metric`, and CheckpointError if a checkpoint's average
/// doesn't fit the model.
struct ModelEmaCallback {
  static constexpr const char* file = "ema_model.safetensors";  ///< in a checkpoint

  ETUDE_STRUCT(
      ModelEmaCallback, (double, decay, "weight of the old average in an update" | between(0, 1), 0.99),
      (bool, warm_up, "smaller decay at first: at most (1 + n) / (10 + n) after n updates", true),
      (Interval, update_every_n_steps, "update steps between updates of the average, or another interval", 1),
      (bool, use_buffers, "also average the buffers; else they are the model's current ones", true),
      (bool, evaluate_during_training, "evaluate the average after each evaluation", true),
      (std::string, save_path, "folder for the best average; empty is none", ""),
      (std::string, watch_metric, "metric that decides which evaluated average is best",
       "ema_model_eval_loss"),
      (std::optional<bool>, greater_is_better,
       "greater is better; unset: as in the arguments, if it is their metric, else true unless it is "
       "a loss"),
      (bool, load_at_end, "put the average into the model when training is complete", false),
      (bool, count_intermediate, "averages evaluated within an epoch may also be the best", true));

  struct State {
    ETUDE_STRUCT(State, (std::int64_t, num_updates, "updates of the average so far", 0),
                 (std::int64_t, last_step, "the last step it has seen", 0),
                 (IntervalTimer, timer, "the elapsed part of update_every_n_steps"),
                 (std::optional<double>, best_metric, "watch_metric of the average in save_path"));
  };
  State state = {};

  bool reads_parameters() const { return true; }

  void on(const CheckpointLoaded& e);
  void on(const TrainBegin& e);
  void on(const StepEnd& e) { update(e); }
  void on(const EpochEnd& e) { update(e); }
  void on(const EvaluateBegin& e);
  void on(const EvaluateAll& e);
  void on(SaveBegin& e);
  void on(const TrainingRunEpochEnd& e);
  void on(const TrainError&) { has_failed = true; }
  void on(const TrainEnd&);

  /// The average, as `Model::load_state_dict` takes it. Throws Error if no training has begun.
  std::vector<NamedTensor> average() const;

  std::optional<AveragedWeights> weights = {};  ///< The average; set once training has begun.
  std::vector<NamedTensor> loaded = {};         ///< The average from a checkpoint, until training begins.
  bool is_running = false;
  bool is_evaluating = false;          ///< The model holds the average's weights.
  bool is_training_evaluation = true;  ///< The current evaluation uses eval_dataset.
  bool has_failed = false;

 private:
  void check(const Context& e) const;
  void update(const Context& e);
  void save(const Context& e, std::optional<double> value) const;
};

}  // namespace etude::inline v0
