#pragma once

#include <torch/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "etude/data/batch.hpp"
#include "etude/events.hpp"
#include "etude/loop/snapshot.hpp"
#include "etude/model/model.hpp"
#include "etude/model/recomputation.hpp"
#include "etude/optim/optimizer.hpp"
#include "etude/precision/grad_scaler.hpp"

namespace etude::inline v0 {

/// Training steps without side effects, for trying something before the training, such as a learning rate.
/// When it ends, weights, buffers, gradients, modes, random numbers, the states of a sampler and of a stream
/// dataset, pending logs and the optimizer are as before; no event is raised. Not for use within an epoch.
class TrainingDryRun {
 public:
  /// Uses the trainer's optimizer, or one made for this. Throws CheckpointError if the optimizer's type has a
  /// state that can't be restored.
  template <class Trainer>
  explicit TrainingDryRun(Trainer& trainer) : TrainingDryRun(trainer.context()) {
    begin();
  }
  TrainingDryRun(const TrainingDryRun&) = delete;
  TrainingDryRun& operator=(const TrainingDryRun&) = delete;
  /// Calls `end`, and reports its errors instead of throwing them.
  ~TrainingDryRun();

  /// Updates the weights with one accumulation group, clipping gradients as in training. Returns the mean of
  /// the losses; reading it waits for the device.
  torch::Tensor step(const std::vector<Batch>& group);

  /// Adds the gradients of one accumulation group to the existing ones. Returns the mean of the losses.
  torch::Tensor add_gradients(const std::vector<Batch>& group);

  /// Discards gradients, such as those that a step that threw has left behind.
  void forget_step();

  /// Sets the largest learning rate to `rate`, and scales the other parameter groups' rates in proportion.
  void set_learning_rate(double rate);

  Optimizer& optimizer() { return *optimizer_; }

  /// Moves the batch to the model's device.
  Batch on_device(const Batch& batch) const;

  /// Restores everything, once.
  void end();

 private:
  explicit TrainingDryRun(const Context& context);
  void begin();

  Context context_;
  EventSource& events_;
  Snapshot<part::Gradients> gradients_;  // before an optimizer made for this flattens the parameters
  Optimizer* optimizer_;
  std::unique_ptr<Optimizer> own_optimizer_;
  std::optional<GradScaler> scaler_;  // with fp16
  std::unique_ptr<RecomputedUnits> recomputed_units_;
  std::optional<EvalGuard> modes_;
  std::optional<OptimizerCopy> optimizer_begin_;
  bool was_result_ = false;  // the parameters held the result of an earlier training
  std::string torch_state_;  // of the user's own optimizer, which may have stepped elsewhere
  /// Unset once everything is restored.
  std::optional<Snapshot<part::Weights, part::Carried, part::DataPositions, part::Logs, part::Generators>>
      begin_;
};

}  // namespace etude::inline v0
