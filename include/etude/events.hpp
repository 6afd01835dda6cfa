#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <exception>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "etude/callback.hpp"
#include "etude/data/batch.hpp"
#include "etude/data/tensors.hpp"
#include "etude/dispatch/callback_forms.hpp"
#include "etude/metrics/metrics.hpp"
#include "etude/metrics/pending_logs.hpp"
#include "etude/trainer_control.hpp"
#include "etude/trainer_state.hpp"
#include "etude/training_arguments.hpp"

/// The vocabulary: every event that a trainer raises, in the order in which they come. A handler takes an
/// event as `const Event&` to read it or as `Event&` to change its payload, which is what isn't const here;
/// `control` may be written by all.
namespace etude {

class AnyTrainer;
class DataLoader;
class LRScheduler;
class Model;
class Optimizer;
class ProcessingClass;

/// What every event carries. A handler `void on(const etude::Context&)` hears all of them.
struct Context {
  const TrainingArguments& args;
  const TrainerState& state;
  TrainerControl& control;
  Model& model;
  Optimizer* optimizer;                     ///< Null until `TrainBegin`.
  LRScheduler* lr_scheduler;                ///< Null until `TrainBegin`.
  const DataLoader* train_dataloader;       ///< Null until `TrainBegin`.
  const DataLoader* eval_dataloader;        ///< The one in use; null outside evaluation and prediction.
  const ProcessingClass* processing_class;  ///< Null if the trainer was given none.
  PendingLogs& pending_logs;
  AnyTrainer& trainer;  ///< What raised the event, whatever its type: any_trainer.hpp.

  /// Adds `name` to the next log: the mean of what was logged under it since the last one. A tensor (one
  /// element, any device) is not read before then, so this never waits for a device.
  void log(std::string_view name, double value) const { pending_logs.add(name, value); }
  void log(std::string_view name, const at::Tensor& value) const { pending_logs.add(name, value); }
};

/// The trainer is built: the last thing that its constructor does.
struct InitEnd : Context {};

/// What a loader is for.
enum class LoaderUse { train, evaluate, predict };

/// A loader was made: at the beginning of training, before its steps are counted, and of each evaluation and
/// prediction.
struct DataLoaderCreated : Context {
  const DataLoader& dataloader;
  const LoaderUse use;
  /// Batches (of one device) after which each of its epochs ends; unset is all. At least 1.
  std::optional<std::int64_t> max_batches = {};
  const bool is_intermediate = false;  ///< For such an evaluation: see `Evaluate`.
};

/// Somebody asks of how many micro-batches an update of `epoch` (from 0) is made: when the steps of a
/// training are counted, and where an epoch begins. Asked of the same epoch again, the answer has to be the
/// same.
struct AccumulationPlanned : Context {
  const std::int64_t epoch = 0;
  std::int64_t gradient_accumulation_steps = 1;  ///< At least 1; as the arguments have it, if nobody writes.
};

/// Training begins: optimizer, scheduler and loader are there, what was to be resumed is loaded.
struct TrainBegin : Context {
  const bool is_resumed = false;  ///< The training goes on from a checkpoint.
};

/// An epoch begins. `state.epoch` is the fraction that was done before.
struct EpochBegin : Context {
  /// The training goes on in the midst of this epoch, whose `EpochBegin` the run before has heard. Weights,
  /// buffers, the optimizer and the saved state of callbacks are put back afterwards to what they were before
  /// the event.
  const bool is_resumed = false;
};

/// The loader is about to be asked for the micro-batches of an update.
struct BatchFetchBegin : Context {};

/// A micro-batch has come out of the loader and lies on the model's device. All those of one accumulation
/// group are fetched before its first is used.
struct BatchFetched : Context {
  Batch batch;
};

/// An update step begins: the first micro-batch of a group.
struct StepBegin : Context {};

/// A micro-batch is about to go through the model.
struct ForwardBegin : Context {
  Batch batch;
};

/// A micro-batch has gone through model and loss, and nothing has been differentiated yet. `loss` is divided
/// already by what it has to be for the group's gradients to add up.
struct BackwardBegin : Context {
  const Batch& batch;
  Tensors output;
  at::Tensor loss;
};

/// The gradients of a micro-batch are added to those of its group.
struct BackwardEnd : Context {
  const Batch& batch;
  const at::Tensor& loss;
  /// What the mean loss of the batch was multiplied with, for the losses of a group to add up; unset where
  /// they do so by themselves, being sums over items divided by those of the group.
  const std::optional<double> share = {};
};

/// A micro-batch that is not the last of its group is done.
struct SubstepEnd : Context {};

/// Memory ran out (`auto_microbatching`): the gradients of the group are begun anew, in smaller parts. What
/// was heard of it since `StepBegin` counts no more.
struct StepRestarted : Context {};

/// The gradients of a group are complete, and not clipped yet.
struct GradientsComplete : Context {};

/// The gradients of a group are complete, and clipped if that was asked for.
struct GradientsClipped : Context {
  const at::Tensor& grad_norm;  ///< The L2 norm before clipping, one element on the model's device.
};

/// After clipping, before the optimizer.
struct PreOptimizerStep : Context {};

/// After the optimizer; the gradients are still there.
struct OptimizerStep : Context {};

/// After the learning-rate scheduler.
struct SchedulerStep : Context {
  const double learning_rate;  ///< That of the next step.
};

/// An update was made: `state.global_step` and `state.epoch` count it. A step that was given up has no
/// `StepEnd`.
struct StepEnd : Context {};

/// A set of logs goes out. What a writer changes is what `state.log_history` keeps.
struct Log : Context {
  Metrics logs;
};

/// A checkpoint of this moment is about to be written, perhaps behind the training. What a writer adds to
/// `tensors`, under the name of a file, becomes a safetensors file of the checkpoint, to be read again at
/// `CheckpointLoaded`.
struct SaveBegin : Context {
  std::map<std::string, std::vector<std::pair<std::string, at::Tensor>>> tensors = {};
};

/// A checkpoint was written.
struct Save : Context {
  const std::filesystem::path& checkpoint;
};

/// A checkpoint is about to be handed to `TrainerOptions::push`.
struct PushBegin : Context {
  const std::filesystem::path& checkpoint;
};

/// Weights were read from a checkpoint: to go on from it, or because it is the best.
struct CheckpointLoaded : Context {
  const std::filesystem::path& checkpoint;
};

/// `evaluate()` was called by the user, not by training; once for all of its datasets.
struct EvaluationRunBegin : Context {};

/// The evaluation of one dataset begins; the model is in evaluation mode.
struct EvaluateBegin : Context {
  const std::string_view metric_key_prefix;  ///< "eval", or "eval_NAME" where there are several datasets.
  const bool is_intermediate = false;        ///< See `Evaluate`.
};

/// `predict()` begins; the model is in evaluation mode.
struct PredictBegin : Context {
  const std::string_view metric_key_prefix;
};

/// A batch of an evaluation or a prediction is about to go through the model.
struct PredictionStepBegin : Context {
  Batch batch;
};

/// A batch of an evaluation or a prediction is done.
struct PredictionStep : Context {
  const Batch& batch;
  const Tensors& output;
  const at::Tensor& loss;  ///< Undefined where there are no labels and the loss needs them.
};

/// The metrics of one dataset. `state.best_metric` is still the one of before.
struct Evaluate : Context {
  Metrics metrics;
  /// A training evaluates in the steps of an epoch, the last of them included: because of `eval_steps` or of
  /// what a callback has asked for. Not at an epoch's end, before the first step, or outside of a training.
  const bool is_intermediate = false;
};

/// The evaluation of one dataset is over, whether it came to its metrics or not.
struct EvaluateEnd : Context {};

/// All datasets of an evaluation are done, be there one or several: the metrics of all of them, each under
/// the name of its dataset. This is what decides which model is the best.
struct EvaluateAll : Context {
  Metrics metrics;
  const bool is_intermediate = false;  ///< See `Evaluate`.
};

/// `evaluate()` is over: the metrics of all of its datasets, and none if it failed. What a writer changes is
/// what the user gets.
struct EvaluationRunEnd : Context {
  Metrics metrics = {};
};

/// The metrics of a prediction.
struct Predict : Context {
  Metrics metrics;
};

/// `predict()` is over, whether it came to its metrics or not.
struct PredictEnd : Context {};

/// The training part of an epoch is over, its evaluation is yet to come.
struct EpochEnd : Context {
  /// The epoch was gone through, or `should_epoch_stop` has ended it. If not, the training ends in its midst:
  /// resumed, it goes on with the epoch, which ends once more.
  const bool is_done = false;
};

/// An epoch with its evaluation is over.
struct TrainingRunEpochEnd : Context {
  const bool is_done = false;  ///< See `EpochEnd`.
};

/// Training ends before `state.max_steps`, for a reason in words: what `TrainerControl::request_stop` or
/// `StopTraining` said. What is asked of `control` here is still done.
struct Stop : Context {
  const std::string_view reason;
};

/// Something threw. Every callback hears this one, whoever else throws meanwhile, before the end events of
/// what was open. The exception comes out of the trainer's method afterwards, as it was thrown.
struct TrainError : Context {
  const std::exception_ptr& error;
  const std::string_view what;
  const std::string_view callback;  ///< The callback that threw; empty if none did.
  const std::string_view event;     ///< The event that it was handling.
};

/// Training is over, in whatever way.
struct TrainEnd : Context {};

/// Every event of this page.
using Vocabulary =
    events<InitEnd, DataLoaderCreated, AccumulationPlanned, TrainBegin, EpochBegin, BatchFetchBegin,
           BatchFetched, StepBegin, ForwardBegin, BackwardBegin, BackwardEnd, SubstepEnd, StepRestarted,
           GradientsComplete, GradientsClipped, PreOptimizerStep, OptimizerStep, SchedulerStep, StepEnd, Log,
           SaveBegin, Save, PushBegin, CheckpointLoaded, EvaluationRunBegin, EvaluateBegin, PredictBegin,
           PredictionStepBegin, PredictionStep, Evaluate, EvaluateEnd, EvaluateAll, EvaluationRunEnd, Predict,
           PredictEnd, EpochEnd, TrainingRunEpochEnd, Stop, TrainError, TrainEnd>;

/// Those of them that have something to write.
using WritableVocabulary =
    events<DataLoaderCreated, AccumulationPlanned, BatchFetched, ForwardBegin, BackwardBegin, Log, SaveBegin,
           PredictionStepBegin, Evaluate, EvaluateAll, EvaluationRunEnd, Predict>;

namespace detail {

template <class Event, class... List>
consteval bool is_among(events<List...>) {
  return (__is_same(Event, List) || ...);
}

template <class Event>
  requires(std::is_base_of_v<Context, Event>)
inline constexpr bool has_constant_payload<Event> = __is_same(Event, Context) ||
                                                    (is_among<Event>(Vocabulary{}) &&
                                                     !is_among<Event>(WritableVocabulary{}));

}  // namespace detail
}  // namespace etude
