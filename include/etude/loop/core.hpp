#pragma once

#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/checkpoint/training_progress.hpp"
#include "etude/checkpoint/writer.hpp"
#include "etude/data/batch.hpp"
#include "etude/data/data_loader.hpp"
#include "etude/events.hpp"
#include "etude/libtorch/own_generators.hpp"
#include "etude/loop/accumulation.hpp"
#include "etude/loop/accumulation_group.hpp"
#include "etude/loop/calls.hpp"
#include "etude/loop/log_history.hpp"
#include "etude/loop/log_window.hpp"
#include "etude/loop/loss_check.hpp"
#include "etude/loop/missing_labels.hpp"
#include "etude/loop/part_size.hpp"
#include "etude/loop/phase_clock.hpp"
#include "etude/loop/plan.hpp"
#include "etude/loop/ranks.hpp"
#include "etude/loop/remote_control.hpp"
#include "etude/loop/token_counter.hpp"
#include "etude/loop/unknown_divisor.hpp"
#include "etude/metrics/pending_logs.hpp"
#include "etude/model/carried_state.hpp"
#include "etude/model/loss_divisor.hpp"
#include "etude/model/model.hpp"
#include "etude/model/recomputation.hpp"
#include "etude/optim/lr_scheduler.hpp"
#include "etude/optim/named_optimizer.hpp"
#include "etude/optim/optimizer.hpp"
#include "etude/parallel/sharded_units.hpp"
#include "etude/parallel/shards.hpp"
#include "etude/precision/grad_scaler.hpp"
#include "etude/trainer_options.hpp"

namespace etude::inline v0 {

/// The object that a trainer's method has made. Throws ArgumentError if it is null.
template <class T>
std::unique_ptr<T> made_by(std::string_view method, std::unique_ptr<T> made) {
  if (!made) throw ArgumentError(std::string(method) + " gave a null pointer");
  return made;
}

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

/// How the optimizers share a step: one backward pass for all, one for each with its own loss, or as the
/// `training_step` of a trainer pleases.
enum class StepSharing { together, in_turn, by_hand };

/// An evaluation or prediction under way.
struct Evaluation {
  const DataLoader& loader;
  bool is_prediction;
  std::optional<double> num_items = {};  ///< those of the batch under way, if the loss counts any
};

struct GroupBegin;

/// The state that the loops work on: everything of a trainer that doesn't depend on its type.
struct TrainerCore {
  TrainerOptions options;
  TrainingArguments args;  ///< those of the options, with open choices decided
  Ranks ranks;
  std::optional<ShardStage> shard_stage;  ///< what each process keeps only a share of, if anything
  torch::Device device = torch::kCPU;
  Model model;
  CarriedStates carried;  ///< those of the model
  TrainerState state;
  TrainerControl control;
  OptimizerList optimizers;
  std::function<void(std::size_t)> step_by_hand;  ///< makes the step of one of them, in a training step
  std::optional<GradScaler> scaler;               ///< with fp16
  std::unique_ptr<ShardedUnits> sharded_units;    ///< while each process keeps only a share of the parameters
  std::unique_ptr<RecomputedUnits> recomputed_units;  ///< with gradient_checkpointing, in a training
  std::unique_ptr<DataLoader> train_dataloader;
  Evaluation* evaluation = nullptr;  ///< the innermost one under way
  AnyTrainer* trainer = nullptr;     ///< the trainer that owns this core
  Overrides overrides;               ///< those of that trainer
  PendingLogs pending_logs;
  std::vector<std::pair<std::string, torch::Tensor>>* loss_parts = nullptr;  ///< of a loss being computed
  TrainerRunConfig run_config;
  TrainingProgress progress;  ///< see `current_progress`
  mutable Calls calls;
  RemoteControl remote;   ///< requests from other threads
  bool is_quiet = false;  ///< see `Quiet`
  OwnGenerators own_generators;
  mutable PhaseClock phase_clock;
  bool training = false;
  bool in_steps = false;  ///< The steps of an epoch are under way.
  bool trained_before = false;
  bool evaluation_is_due = false;  ///< The training requested it, so the training handles errors and signals.
  std::optional<torch::ScalarType> weights_are;  ///< the type that the weights and inputs are cast to
  bool updating = false;  ///< The optimizer is running: weights and moments belong to no step.

  Accumulation accumulation{args};
  AccumulationGroup group;
  std::unique_ptr<GroupBegin> group_begin;  ///< of the group under way, if it may have to begin again
  PartSize part_size{args};
  LogWindow log_window{args, ranks};
  LogHistory log_history{state};
  TokenCounter token_counter{options, args, model};
  LossCheck loss_check{options, args, model, optimizers};
  MissingLabels missing_labels{args};
  UnknownDivisor unknown_divisor{args};
  CheckpointWriter checkpoint_writer{args, options.file_system};

  TrainerCore();
  TrainerCore(const TrainerCore&) = delete;
  TrainerCore& operator=(const TrainerCore&) = delete;
  ~TrainerCore();

  /// Joins the other processes with `join`, and makes the model. Throws ArgumentError that lists everything
  /// wrong with the options.
  void initialise(std::shared_ptr<Communicator> (*join)(const TrainingArguments&));

  /// Prepares the machine for a training, and warns if its LibTorch is slow.
  void prepare_machine() const;

  /// Warns of trained parameters of the loss, which no checkpoint has.
  void warn_of_unsaved_state() const;

  /// Saves the weights, and the processing class, to files in a folder.
  void save_model(const std::filesystem::path& directory) const;

  /// Makes the model according to the options, on its device, after seeding, with the weights and buffers of
  /// the first process. Throws ArgumentError if `model_init` returns none.
  void make_model();
  /// Gives all processes the weights and buffers of the first.
  void share_model();
  /// Likewise for the buffers, which each process's batches have changed.
  void share_buffers();

  StepSharing step_sharing() const;

  /// Returns the state that the model carries to the beginning of the group under way, if there is one.
  void return_carried() const;

  /// Calls backward on a training loss, scaled if fp16 requires it.
  void backward(const torch::Tensor& loss);
  /// The same, with gradients for the parameters of one optimizer only.
  void backward(const torch::Tensor& loss, std::size_t optimizer);

  /// Resets the state of the previous training.
  void begin_training();
  /// Writes into the state which process this is.
  void set_process();

  /// Keeps the moments of the optimizers on the CPU. Throws ArgumentError for one that can't.
  void offload_moments();
  /// Throws ArgumentError for a loss that gets a number that differs from batch to batch.
  void check_captured_loss() const;

  std::int64_t trainable_parameters() const;
  std::vector<double> learning_rates() const;

  /// Fills the plan's numbers into the state and `run_config`.
  void set_plan(const TrainPlan& plan);

  /// Loaders, optimizer and schedule according to the options and arguments.
  std::unique_ptr<DataLoader> make_train_dataloader() const;
  std::unique_ptr<DataLoader> make_eval_dataloader(const Dataset& dataset) const;
  std::unique_ptr<Optimizer> make_optimizer();
  std::unique_ptr<LRScheduler> make_scheduler(std::int64_t max_steps);

  /// The batches of the current epoch from the training's position. Reacts to signals, because skipping ahead
  /// in a stream or sampler takes time.
  BatchStream begin_batches() const;
  /// The position after an update with this many more `micro_batches`, where the epoch's number of `examples`
  /// and the dataset's state are those of the stream of batches.
  DataPosition position_after(std::int64_t examples, std::shared_ptr<const DatasetState> dataset_state,
                              std::int64_t micro_batches) const;
  /// Whether each of several processes brings batches of its own: of a dataset that is already divided, of a
  /// loader that doesn't divide it, or from a program's own loop.
  bool brings_own_batches() const;
  /// The batches left in the epoch under way, in the process that has most; unset if some process doesn't
  /// know.
  std::optional<std::int64_t> batches_left() const;
  /// Identifies the training examples of all processes.
  DatasetInfo train_dataset_info() const;
  /// The examples in a full training batch of all processes.
  std::int64_t total_train_batch_size() const;
  /// The examples in this many full training batches; a double, because no product overflows it.
  double padded(std::int64_t batches) const;

  /// Whether this error makes `auto_find_batch_size` try a smaller size; if so, sets that size.
  bool finds_batch_size(const std::exception_ptr& error) const;
  /// Whether this error would do so in a process alone.
  bool is_too_large(const std::exception_ptr& error) const;
  void shrink_batches();

  /// Adds a value to the next log, or to the parts of the loss that is being computed. Throws DataError for a
  /// tensor that isn't one element.
  void log(std::string_view name, double value);
  void log(std::string_view name, const torch::Tensor& value);

  /// Whether the user computes the loss from a batch.
  bool has_own_compute_loss() const {
    return options.compute_loss || overrides.compute_loss || step_sharing() == StepSharing::in_turn;
  }
  /// The number of items that a loss of these labels is divided by, if it may take that number.
  std::optional<double> items_in(const Tensors& labels) const;
  /// Whether losses may be divided by the number of items.
  bool may_count_items() const { return options.loss.counts_items() || has_own_compute_loss(); }
  /// How the losses of parts of a batch make that of the whole, for a loss module of LibTorch's and for a
  /// model that knows it of its own loss.
  LossReduction loss_reduction() const;
  /// What the loss of these labels is divided by, if that reduction is `mean`.
  std::optional<LossDivisor> loss_divisor(const Tensors& labels) const;
  /// Counts the tokens of the group's micro-batches, and what their losses are divided by, except for those
  /// with a share of 0. Returns the divisors, if they are known and needed.
  std::vector<std::optional<LossDivisor>> count(const std::vector<Batch>& micro_batches,
                                                const std::vector<double>& shares);
  /// Warns, once, that nobody knows what the loss is divided by.
  void warn_of_unknown_divisor();

  /// Everything about the training's position that TrainerState doesn't hold.
  TrainingProgress current_progress();

  /// Loads what was saved, except for what is known of the training examples, which stays.
  void load_progress(const TrainingProgress& saved);

  // defined in the class, so that an event without handlers costs nothing
  Context context();

  /// Adds the number of updates that were left out, if there were any.
  void add_skipped_steps(Metrics& logs) const;
  /// Adds `epoch` and the values that callbacks have logged.
  void complete_logs(Metrics& logs);

  /// Whether an evaluation now would be within the steps of an epoch.
  bool is_intermediate() const { return training && in_steps; }
  bool is_predicting() const { return evaluation && evaluation->is_prediction; }

  bool stopping() const { return control.should_training_stop || control.should_epoch_stop; }
};

}  // namespace etude::inline v0
