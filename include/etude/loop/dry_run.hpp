#pragma once

#include <torch/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "etude/data/batch.hpp"
#include "etude/events.hpp"
#include "etude/libtorch/random_state.hpp"
#include "etude/metrics/pending_logs.hpp"
#include "etude/model/model.hpp"
#include "etude/optim/optimizer.hpp"

namespace etude {

/// Training steps that leave nothing behind: for what has to try something before the training, such as a
/// learning rate. Weights, buffers, gradients, modes, random numbers, a sampler's state, what is to be logged
/// and an optimizer of the user's own are as before when it is over; no event is raised. Not for use while
/// the trainer trains.
class TrainingDryRun {
 public:
  /// With the trainer's optimizer, or one that it makes for this. Throws CheckpointError if that is of a type
  /// whose state nobody knows how to put back.
  template <class Trainer>
  explicit TrainingDryRun(Trainer& trainer) : TrainingDryRun(trainer.context()) {
    if (!optimizer_) {
      own_optimizer_ = trainer.create_optimizer();
      optimizer_ = own_optimizer_.get();
    }
    begin();
  }
  TrainingDryRun(const TrainingDryRun&) = delete;
  TrainingDryRun& operator=(const TrainingDryRun&) = delete;
  /// As `end`; what that throws is told, and not thrown.
  ~TrainingDryRun();

  /// One update of the weights by an accumulation group, gradients clipped as in training. Returns the mean
  /// of the losses; whoever reads it waits for the device.
  torch::Tensor step(const std::vector<Batch>& group);

  /// Lets go of what a step that threw has left.
  void forget_step();

  /// The rate of each parameter group, which keep their proportions: `rate` is the largest.
  void set_learning_rate(double rate);

  /// The batch on the model's device.
  Batch on_device(const Batch& batch) const;

  /// Puts everything back, once.
  void end();

 private:
  explicit TrainingDryRun(const Context& context);
  void begin();

  Context context_;
  Optimizer* optimizer_;
  std::unique_ptr<Optimizer> own_optimizer_;
  bool is_over_ = true;

  std::vector<std::pair<torch::Tensor, torch::Tensor>> tensors_;    // each with a copy
  std::vector<std::pair<torch::Tensor, torch::Tensor>> gradients_;  // of each parameter, perhaps undefined
  std::optional<EvalGuard> modes_;
  RandomState random_;
  std::optional<std::string> sampler_;
  PendingLogs pending_logs_;
  NamedTensors optimizer_state_;
  std::string torch_state_;  // of an optimizer of the user's, which may have stepped elsewhere
  std::vector<std::pair<double, double>> rates_;  // lr and initial_lr of each group
};

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/loop/impl/dry_run.ipp"
#endif
