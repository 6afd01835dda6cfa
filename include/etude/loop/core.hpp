#pragma once

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/checkpoint/training_progress.hpp"
#include "etude/data/batch.hpp"
#include "etude/data/batch_stream.hpp"
#include "etude/events.hpp"
#include "etude/loop/plan.hpp"
#include "etude/loop/run_position.hpp"
#include "etude/loop/run_reports.hpp"
#include "etude/loop/run_settings.hpp"
#include "etude/loop/trained.hpp"
#include "etude/metrics/metrics.hpp"
#include "etude/model/loss_divisor.hpp"
#include "etude/optim/lr_scheduler.hpp"
#include "etude/optim/optimizer.hpp"

namespace etude::inline v0 {

/// Returns the object that a trainer's method has made. Throws ArgumentError if it is null.
template <class T>
std::unique_ptr<T> made_by(std::string_view method, std::unique_ptr<T> made) {
  if (!made) throw ArgumentError(std::string(method) + " gave a null pointer");
  return made;
}

/// The state that the loops work on: the members of a trainer that don't depend on its type.
struct TrainerCore : RunSettings, RunPosition, Trained, RunReports {
  TrainerCore();

  /// Joins the other processes with `join`, and makes the model. Throws ArgumentError that lists everything
  /// wrong with the options.
  void initialise(std::shared_ptr<Communicator> (*join)(const TrainingArguments&));

  /// Prepares the machine for a training, and warns if its LibTorch is slow.
  void prepare_machine() const;

  /// Warns if the loss has trained parameters, which no checkpoint contains.
  void warn_of_unsaved_state() const;

  /// Saves the weights, and the processing class, to files in a folder.
  void save_model(const std::filesystem::path& directory) const;

  /// Makes the model according to the options, on its device, after seeding, with the weights and buffers of
  /// the first process. Throws ArgumentError if `model_init` returns none.
  void make_model();
  /// Gives all processes the weights and buffers of the first.
  void share_model();
  /// Gives all processes the buffers of the first, since each process's batches have changed them.
  void share_buffers();

  /// Calls backward on a training loss, scaled if fp16 requires it.
  void backward(const torch::Tensor& loss);
  /// The same, with gradients for the parameters of one optimizer only.
  void backward(const torch::Tensor& loss, std::size_t optimizer);

  /// Resets the state of the previous training.
  void begin_training();
  /// Writes to the state whether this is the first process of all, and of its machine.
  void set_process();

  /// Copies the plan's numbers to `run_config`, and the numbers of the `whole` training to the state. The two
  /// plans differ if there are several phases.
  void set_plan(const TrainPlan& plan, const TrainPlan& whole);

  /// Make the optimizer and the schedule that the options and arguments specify.
  std::unique_ptr<Optimizer> make_optimizer();
  std::unique_ptr<LRScheduler> make_scheduler(std::int64_t max_steps);

  /// The batches of the current epoch from the training's position. Reacts to signals, because skipping ahead
  /// in a stream or sampler takes time.
  BatchStream begin_batches() const;
  /// Writes the dataset's state into the position, unless it is kept after each batch. Does nothing in the
  /// middle of an update, where the state is unknown.
  void ask_dataset_state();
  /// Returns the position after an update of `micro_batches` more micro-batches. `examples`, the number in
  /// the epoch so far, and the dataset's state come from the stream of batches.
  DataPosition position_after(std::int64_t examples, std::shared_ptr<const DatasetState> dataset_state,
                              std::int64_t micro_batches) const;
  /// Whether there are several processes, each of which brings different batches: from a dataset that is
  /// already divided, from a loader that doesn't divide it, or from a program's own loop.
  bool brings_own_batches() const;
  /// The number of batches left in the epoch under way, in the process that has the most; unset if any
  /// process doesn't know its number.
  std::optional<std::int64_t> batches_left() const;
  /// Identifies the training examples of all processes.
  DatasetInfo train_dataset_info() const;
  /// The number of items by which the loss for these labels is divided, if the loss may count items.
  std::optional<double> items_in(const Tensors& labels) const;
  /// How the losses of a batch's parts combine into the batch's; known for LibTorch's loss modules, and for
  /// models that report it for the loss that they compute.
  LossReduction loss_reduction() const;
  /// The divisor of the loss for these labels, if `loss_reduction()` is `mean`.
  std::optional<LossDivisor> loss_divisor(const Tensors& labels) const;
  /// Counts the tokens of the group's micro-batches and the divisors of their losses, except for
  /// micro-batches with a share of 0. Returns the divisors, if they are known and needed.
  std::vector<std::optional<LossDivisor>> count(const std::vector<Batch>& micro_batches,
                                                const std::vector<double>& shares);
  /// Warns, once, that the divisor of the loss is unknown.
  void warn_of_unknown_divisor();

  /// Everything about the training's position that TrainerState doesn't hold.
  TrainingProgress current_progress();

  /// Loads saved progress, but keeps the description of the current training examples.
  void load_progress(const TrainingProgress& saved);

  Context context();

  /// Adds the number of skipped updates, if there were any.
  void add_skipped_steps(Metrics& logs) const;
  /// Adds `epoch` and the values that callbacks have logged.
  void complete_logs(Metrics& logs);
};

}  // namespace etude::inline v0
