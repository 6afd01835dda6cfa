#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>

#include "etude/any_trainer.hpp"
#include "etude/data/data_loader.hpp"
#include "etude/loop/ranks.hpp"
#include "etude/parallel/shards.hpp"
#include "etude/trainer_options.hpp"

namespace etude::inline v0 {

/// Which of these methods the class of a trainer overrides, and whether its `training_step` makes the steps
/// of the optimizers.
struct Overrides {
  bool compute_loss = false;
  bool training_step = false;
  bool get_eval_dataloader = false;
  bool log = false;
  bool create_optimizer = false;
  bool steps_by_hand = false;
};

/// How the optimizers share a step: one backward pass for all; one for each, with separate losses; as the
/// trainer's `training_step` decides; or as a program that computes the losses itself decides.
enum class StepSharing { together, in_turn, by_hand, by_program };

/// The options and arguments of a run, its processes and its device. They don't change once the trainer is
/// made, except for the batch size that `auto_find_batch_size` finds, and for the settings that a phase
/// changes while it lasts.
struct RunSettings {
  TrainerOptions options;
  TrainingArguments args;  ///< the options' arguments, with open choices resolved
  Ranks ranks;
  std::optional<ShardStage> shard_stage;  ///< what is divided among the processes; unset: nothing
  torch::Device device = torch::kCPU;
  Overrides overrides;            ///< the trainer's overrides
  bool is_quiet = false;          ///< see `Quiet`
  AnyTrainer* trainer = nullptr;  ///< the trainer itself

  StepSharing step_sharing() const;
  /// Whether the user computes the loss from a batch.
  bool has_own_compute_loss() const {
    return options.compute_loss || overrides.compute_loss || step_sharing() == StepSharing::in_turn;
  }
  /// Whether checkpoints are written without a callback's request.
  bool may_save() const { return args.save_strategy != SaveStrategy::no || args.load_best_model_at_end; }
  /// Whether a signal may end the training in the middle of an accumulation group, which the checkpoint then
  /// contains half done. False with program variables, which have no copy from the group's beginning.
  bool may_interrupt_groups() const { return !ranks.several() && options.program_state.empty(); }
  /// Whether losses may be divided by the number of items.
  bool may_count_items() const { return options.loss.counts_items() || has_own_compute_loss(); }

  /// The examples in a full training batch of all processes.
  std::int64_t total_train_batch_size() const;
  /// The examples in this many full training batches; a double, because no product overflows it.
  double padded(std::int64_t batches) const;

  /// Make the loaders that the options and arguments specify.
  std::unique_ptr<DataLoader> make_train_dataloader() const;
  std::unique_ptr<DataLoader> make_eval_dataloader(const Dataset& dataset) const;

  /// Whether this error makes `auto_find_batch_size` try a smaller size.
  bool finds_batch_size(const std::exception_ptr& error) const;
  /// Whether this error would have that effect in a single process.
  bool is_too_large(const std::exception_ptr& error) const;
  /// Sets the smaller size, and warns of it.
  void shrink_batches();
};

}  // namespace etude::inline v0
