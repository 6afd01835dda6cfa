#pragma once

#include <torch/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "etude/data/batch.hpp"
#include "etude/data/dataset_state.hpp"
#include "etude/events.hpp"
#include "etude/libtorch/random_state.hpp"
#include "etude/libtorch/tensor_copies.hpp"
#include "etude/metrics/pending_logs.hpp"
#include "etude/model/carried_state.hpp"
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
    if (!optimizer_) {
      own_optimizer_ = trainer.create_optimizer();
      if (context_.args.offload_optimizer) own_optimizer_->offload_moments();
      optimizer_ = own_optimizer_.get();
    }
    begin();
  }
  TrainingDryRun(const TrainingDryRun&) = delete;
  TrainingDryRun& operator=(const TrainingDryRun&) = delete;
  /// Calls `end`, and reports its errors instead of throwing them.
  ~TrainingDryRun();

  /// Updates the weights with one accumulation group, clipping gradients as in training. Returns the mean of
  /// the losses; reading it waits for the device.
  torch::Tensor step(const std::vector<Batch>& group);

  /// Adds the gradients of one accumulation group to those there are. Returns the mean of the losses.
  torch::Tensor add_gradients(const std::vector<Batch>& group);

  /// Discards gradients, such as those that a step that threw has left behind.
  void forget_step();

  /// Sets the rates of the parameter groups, which keep their proportions: `rate` is the largest.
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
  Optimizer* optimizer_;
  std::unique_ptr<Optimizer> own_optimizer_;
  std::optional<GradScaler> scaler_;  // with fp16
  std::unique_ptr<RecomputedUnits> recomputed_units_;
  bool is_over_ = true;

  TensorCopies tensors_;
  std::vector<std::pair<torch::Tensor, torch::Tensor>> gradients_;  // one per parameter, perhaps undefined
  std::optional<EvalGuard> modes_;
  RandomState random_;
  CarriedTensors carried_;
  std::optional<std::string> sampler_;
  std::optional<DatasetState> dataset_;
  PendingLogs pending_logs_;
  NamedTensors optimizer_state_;
  std::string torch_state_;  // of the user's own optimizer, which may have stepped elsewhere
  std::vector<std::pair<double, double>> rates_;  // lr and initial_lr of each group
};

}  // namespace etude::inline v0
