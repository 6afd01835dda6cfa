#pragma once

#include <torch/types.h>

#include <optional>
#include <vector>

#include "etude/data/batch.hpp"
#include "etude/model/model.hpp"
#include "etude/optim/named_optimizer.hpp"
#include "etude/trainer_options.hpp"

namespace etude::inline v0 {

/// Throws `DataError` unless `backward` can be called on `loss`.
void check_training_loss(const torch::Tensor& loss);

/// Checks the losses of a trainer's steps. Slow checks run only once per trainer.
class LossCheck {
 public:
  /// All of these must outlive this. There may be no optimizers yet.
  LossCheck(const TrainerOptions& options, const TrainingArguments& args, const Model& model,
            const OptimizerList& optimizers);

  /// Checks a loss against its batch before `backward`. Warns once about tensors that require gradients and
  /// contribute to the losses of both of the first two batches but aren't trained, such as the weights of a
  /// layer that wasn't registered. A tensor that exists for one batch only, as for a gradient penalty,
  /// doesn't count. Throws `DataError` unless `backward` can be called on `loss`.
  void before_backward(const torch::Tensor& loss, const Batch& batch);

  /// Returns the loss of a training step, detached. Throws `DataError` if it is missing, or if the first loss
  /// that isn't detached has left no gradients because `backward` wasn't called on it.
  torch::Tensor after_step(torch::Tensor loss);

 private:
  const TrainerOptions& options_;
  const TrainingArguments& args_;
  const Model& model_;
  const OptimizerList& optimizers_;
  bool checked_leaves_ = false;
  std::optional<std::vector<torch::Tensor>> untrained_leaves_;  // of the first batch, until the second
  bool checked_backward_ = false;
};

}  // namespace etude::inline v0
