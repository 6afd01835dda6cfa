#pragma once

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "etude/data/batch_stream.hpp"
#include "etude/data/data_loader.hpp"
#include "etude/libtorch/own_generators.hpp"
#include "etude/loop/accumulation.hpp"
#include "etude/loop/accumulation_group.hpp"
#include "etude/loop/compiled_step.hpp"
#include "etude/loop/part_size.hpp"
#include "etude/model/carried_state.hpp"
#include "etude/model/model.hpp"
#include "etude/model/recomputation.hpp"
#include "etude/optim/named_optimizer.hpp"
#include "etude/parallel/sharded_units.hpp"
#include "etude/precision/grad_scaler.hpp"
#include "etude/training_arguments.hpp"

namespace etude::inline v0 {

struct WorkBegin;

/// The model that a run optimizes, its optimizers, and the accumulation group under way.
struct Trained {
  Model model;
  bool trained_before = false;  ///< With `model_init`, the next training makes another model.
  std::optional<torch::ScalarType> weights_are;  ///< the type that the weights and inputs are cast to
  CarriedStates carried;                         ///< the model's
  OptimizerList optimizers;
  std::function<void(std::size_t)> step_by_hand;  ///< makes the step of one optimizer, in a training step
  bool losses_are_given = false;                  ///< A program computes them: see `TrainerBase::backward`.
  std::optional<GradScaler> scaler;               ///< with fp16
  std::unique_ptr<ShardedUnits> sharded_units;    ///< while each process keeps only a share of the parameters
  std::unique_ptr<RecomputedUnits> recomputed_units;  ///< with gradient_checkpointing, in a training
  CompiledStep compiled_step;
  OwnGenerators own_generators;
  std::unique_ptr<DataLoader> train_dataloader;
  const BatchStream* batches = nullptr;  ///< the stream that the steps of the epoch read
  Accumulation accumulation;
  AccumulationGroup group;
  std::unique_ptr<WorkBegin> work_begin;  ///< where a group or evaluation may have to begin again
  PartSize part_size;

  /// `args` must outlive this.
  explicit Trained(const TrainingArguments& args);
  Trained(const Trained&) = delete;
  Trained& operator=(const Trained&) = delete;
  ~Trained();

  std::int64_t trainable_parameters() const;
  /// The learning rates of the optimizer whose turn it is. Throws ArgumentError before the first training.
  std::vector<double> learning_rates() const;
  /// Keeps the moments of the optimizers on the CPU. Throws ArgumentError for one that can't.
  void offload_moments();
  /// Resets the state that the model carries to the beginning of the group under way, if there is one.
  void return_carried() const;
};

}  // namespace etude::inline v0
