#pragma once

#include <torch/types.h>

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "etude/data/batch.hpp"
#include "etude/loop/core.hpp"
#include "etude/loop/event_source.hpp"
#include "etude/loop/stepped_training.hpp"
#include "etude/metrics/metrics.hpp"
#include "etude/metrics/sample.hpp"
#include "etude/parallel/communicator.hpp"
#include "etude/parallel/shards.hpp"
#include "etude/trainer_options.hpp"

/// The default methods of a trainer.
namespace etude::inline v0::detail {

/// The properties of a trainer that its type decides.
struct TrainerTraits {
  Overrides overrides;
  bool is_quiet;                          ///< see `Quiet`
  std::optional<ShardStage> shard_stage;  ///< what is divided among the processes; unset: nothing
  std::shared_ptr<Communicator> (*join)(const TrainingArguments&);
};

/// Makes the model, and raises `InitEnd`.
void initialise(EventSource& events, TrainerOptions options, const TrainerTraits& traits);

/// Throws Error while a training of `stepped_training` is under way.
TrainOutput train(EventSource& events, const SteppedTraining& stepped_training, const TrainOptions& options);
Metrics evaluate(EventSource& events, const EvaluateOptions& options);
PredictionOutput predict(EventSource& events, const Dataset& dataset, const PredictOptions& options);

LossOutput compute_loss_in_precision(EventSource& events, const Batch& batch,
                                     std::optional<double> num_items_in_batch);
torch::Tensor training_step(EventSource& events, Batch& batch);
/// Runs the backward pass of a loss, already scaled to its share of the group, between its events, for all
/// parameters or for those of one optimizer. Returns the loss, detached.
torch::Tensor backward_pass(EventSource& events, const Batch& batch, Tensors outputs, torch::Tensor loss,
                            std::optional<double> share, std::optional<std::size_t> optimizer = {});
PredictionStepOutput prediction_step(EventSource& events, const Batch& batch,
                                     const std::vector<std::string>& ignore_keys);

void log(EventSource& events, Metrics& logs);
void log_samples(EventSource& events, const std::vector<Sample>& samples);
std::filesystem::path save_checkpoint(EventSource& events);

}  // namespace etude::inline v0::detail
