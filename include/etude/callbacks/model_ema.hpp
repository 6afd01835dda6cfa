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

namespace etude {

/// Keeps an exponential moving average of the model's weights, updated after each step of the optimizer:
/// average = decay * average + (1 - decay) * weights. Follows pytorch-accelerated's callback of this name,
/// whose average moves once an epoch only; the warm-up, `min(decay, (1 + n) / (10 + n))` at the update after
/// n others, is TensorFlow's and timm's. Buffers are averaged as PyTorch Lightning's EMAWeightAveraging does.
///
/// After each evaluation of a training the average is evaluated too, as `ema_model_eval_loss` and the like:
/// its events come with that prefix, to this callback's neighbours as well, while the average is in the
/// model. With `save_path` the best average is kept there (without evaluations: that of the last epoch);
/// without `count_intermediate` one evaluated in the steps of an epoch is never the best.
/// Checkpoints have the average as `ema_model.safetensors`, and a run that is resumed goes on with it to the
/// bit; the weights that a trainer saves stay its own. Of several callbacks that put weights into the model
/// at the end, as this one does with `load_at_end`, the last in the list decides.
///
/// Throws ArgumentError where training begins for a decay out of [0, 1] and the like, MetricError where an
/// evaluation has no `watch_metric`, CheckpointError where the average of a checkpoint doesn't fit.
struct ModelEmaCallback {
  using this_callback = ModelEmaCallback;
  static constexpr const char* file = "ema_model.safetensors";  ///< of a checkpoint

  ETUDE_STRUCT(ModelEmaCallback, (double, decay, "what an update leaves of the average", 0.99),
               (bool, warm_up, "decay less at first: at most (1 + n) / (10 + n) after n updates", true),
               (Interval, update_every_n_steps,
                "update steps from one update of the average to the next, or another interval", 1),
               (bool, use_buffers, "average the buffers, too; else they are the model's of the moment", true),
               (bool, evaluate_during_training, "evaluate the average after each evaluation", true),
               (std::string, save_path, "folder for the best average; empty is none", ""),
               (std::string, watch_metric, "which average is the best, if it is evaluated",
                "ema_model_eval_loss"),
               (bool, greater_is_better, "the best has the greatest watch_metric", false),
               (bool, load_at_end, "put the average into the model when training has come to its end", false),
               (bool, count_intermediate, "averages evaluated in an epoch's steps may be the best, too",
                true),
               (std::int64_t, num_updates, "updates of the average so far", 0),
               (std::int64_t, last_step, "the last step that it has looked at", 0),
               (IntervalTimer, timer, "what has passed of update_every_n_steps"),
               (std::optional<double>, best_metric, "watch_metric of the average in save_path"));

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

  /// The average, with which the model is as `Model::load_state_dict` takes it. Throws Error before a
  /// training.
  std::vector<NamedTensor> average() const;

  std::optional<AveragedWeights> weights = {};  ///< The average itself, from the beginning of training on.
  std::vector<NamedTensor> loaded = {};         ///< Of a checkpoint, until training begins.
  bool is_running = false;
  bool is_evaluating = false;          ///< The average is in the model.
  bool is_training_evaluation = true;  ///< The evaluation under way is one of eval_dataset.
  bool has_failed = false;

 private:
  void check(const Context& e) const;
  void update(const Context& e);
  void save(const Context& e, std::optional<double> value) const;
};

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/callbacks/impl/model_ema.ipp"
#endif
