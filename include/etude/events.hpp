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
#include "etude/metrics/sample.hpp"
#include "etude/trainer_control.hpp"
#include "etude/trainer_state.hpp"
#include "etude/training_arguments.hpp"

/// Every event that a trainer raises, in order. A handler takes an event as `const Event&` to read it or as
/// `Event&` to change its payload: the members that aren't const. Every handler may write `control`.
namespace etude::inline v0 {

class AnyTrainer;
class DataLoader;
class LRScheduler;
class Model;
class Optimizer;
class OptimizerList;
class ProcessingClass;

/// The fields common to all events. A handler `void on(const etude::Context&)` receives every event.
struct Context {
  const TrainingArguments& args;
  const TrainerState& state;
  TrainerControl& control;
  Model& model;
  Optimizer* optimizer;                     ///< Null until `TrainBegin`.
  LRScheduler* lr_scheduler;                ///< Null until `TrainBegin`.
  const OptimizerList& optimizers;          ///< All optimizers of the training, `optimizer` included.
  const DataLoader* train_dataloader;       ///< Null until `TrainBegin`, and when training by `step()`.
  const DataLoader* eval_dataloader;        ///< The loader in use; null outside evaluation and prediction.
  const ProcessingClass* processing_class;  ///< Null if the trainer has none.
  PendingLogs& pending_logs;
  AnyTrainer& trainer;  ///< The trainer that raised the event, type-erased: see any_trainer.hpp.

  /// Adds `name` to the next log: the mean of the values logged under that name since the last one. A tensor
  /// (one element, any device) isn't read until then, so this never waits for a device.
  void log(std::string_view name, double value) const { pending_logs.add(name, value); }
  void log(std::string_view name, const at::Tensor& value) const { pending_logs.add(name, value); }

  /// Logs a text, an image or an audio clip immediately by raising `LogSamples`, for trackers and other
  /// callbacks. See metrics/sample.hpp for the allowed tensors and the errors. Names follow those of metrics:
  /// "eval_cat" belongs to an evaluation.
  void log_text(std::string_view name, std::string_view text) const;
  void log_image(std::string_view name, const at::Tensor& image, std::string_view caption = "") const;
  void log_audio(std::string_view name, const at::Tensor& audio, std::int64_t sample_rate,
                 std::string_view caption = "") const;
  void log_samples(const std::vector<Sample>& samples) const;
};

/// The trainer is constructed. Raised at the end of its constructor.
struct InitEnd : Context {};

enum class LoaderUse { train, evaluate, predict };

/// A loader was made: at the start of training, before its steps are counted, and for each evaluation and
/// prediction.
struct DataLoaderCreated : Context {
  const DataLoader& dataloader;
  const LoaderUse use;
  /// The number of batches (on one device) after which an epoch ends; unset means all. At least 1.
  std::optional<std::int64_t> max_batches = {};
  const bool is_intermediate = false;  ///< True for an intermediate evaluation: see `Evaluate`.
};

/// Asks how many micro-batches make up an update in `epoch` (from 0): raised when the steps of a training are
/// counted, and at the start of each epoch. The answer for an epoch must not change.
struct AccumulationPlanned : Context {
  const std::int64_t epoch = 0;
  std::int64_t gradient_accumulation_steps = 1;  ///< At least 1. Initially the value of the argument.
};

/// Training begins: the optimizer, scheduler and loader exist, and any checkpoint is loaded.
struct TrainBegin : Context {
  const bool is_resumed = false;  ///< The training resumes from a checkpoint.
};

/// A phase begins, in a training with the option `phases`: its optimizer, schedule and loader exist. The
/// first phase begins after `TrainBegin`.
struct PhaseBegin : Context {
  const std::string_view name;    ///< its name in the option `phases`
  const std::int64_t index = 0;   ///< its index in the option, from 0
  const bool is_resumed = false;  ///< The training resumes in this phase, or at its beginning.
};

/// An epoch begins. `state.epoch` is the fraction already done.
struct EpochBegin : Context {
  /// The training resumes in the middle of this epoch, whose `EpochBegin` was already raised in the previous
  /// run. After the event, weights, buffers, the optimizer and the saved state of callbacks are reset to
  /// their values before it.
  const bool is_resumed = false;
};

/// The micro-batches of an update are about to be fetched.
struct BatchFetchBegin : Context {};

/// A micro-batch was fetched and is on the model's device. All micro-batches of an accumulation group are
/// fetched before the first one is used.
struct BatchFetched : Context {
  Batch batch;
};

/// An update step begins, before the first micro-batch of the group.
struct StepBegin : Context {};

/// A micro-batch is about to enter the model. If the program's own loop calls `backward(loss)`, this event
/// comes after the forward pass, and `ForwardBegin`, `BackwardBegin` and `BackwardEnd` have a batch with a
/// size but no tensors, and no output.
struct ForwardBegin : Context {
  Batch batch;
};

/// The forward pass and the loss of a micro-batch are done; its backward pass is next. `loss` is already
/// scaled so that the gradients of the group add up. The trainer's `training_step` raises this event; if you
/// override `training_step`, for example to step the optimizers by hand, raise it there if callbacks need it.
struct BackwardBegin : Context {
  const Batch& batch;
  Tensors output;
  at::Tensor loss;
};

/// The gradients of a micro-batch were added to the group's. Raised by the same method as `BackwardBegin`.
struct BackwardEnd : Context {
  const Batch& batch;
  const at::Tensor& loss;
  /// The factor applied to the mean loss of the batch so that the losses of a group add up: 0 if the batch
  /// has no labels that count. Unset if they already add up, because each is a sum over items divided by the
  /// group's items, or if the labels must be counted on a device.
  const std::optional<double> share = {};
};

/// A micro-batch other than the last of its group is done.
struct SubstepEnd : Context {};

/// Memory ran out (`auto_microbatching`): the group's gradients are computed again from scratch, in smaller
/// micro-batches. Ignore all events of this step since `StepBegin`.
struct StepRestarted : Context {};

/// The gradients of a group overflowed (`fp16`), or they or a loss weren't finite (`on_non_finite`): its
/// update is skipped, with neither a step nor a `StepEnd`. The training goes on with the next micro-batches.
struct StepSkipped : Context {};

/// The gradients of a group are complete, but not yet clipped.
struct GradientsComplete : Context {};

/// The gradients of a group are complete, and clipped if requested.
struct GradientsClipped : Context {
  const at::Tensor& grad_norm;  ///< The L2 norm before clipping, one element on the model's device.
};

/// After clipping, before the optimizer step.
struct PreOptimizerStep : Context {};

/// After the optimizer step; the gradients still exist.
struct OptimizerStep : Context {};

/// After the learning-rate scheduler step.
struct SchedulerStep : Context {
  const double learning_rate;  ///< For the next step.
};

/// An update is done; `state.global_step` and `state.epoch` include it. An abandoned step has no `StepEnd`.
struct StepEnd : Context {};

/// A set of logs is published. Changes by handlers end up in `state.log_history`.
struct Log : Context {
  Metrics logs;
};

/// Samples are published: texts, pictures and sounds, with names as in a log. Every process gets the event.
struct LogSamples : Context {
  const std::vector<Sample>& samples;
};

/// A checkpoint of the current state is about to be written, perhaps in the background. Each entry that a
/// handler adds to `tensors`, keyed by file name, becomes a safetensors file in the checkpoint, and can be
/// read again at `CheckpointLoaded`.
struct SaveBegin : Context {
  std::map<std::string, std::vector<std::pair<std::string, at::Tensor>>> tensors = {};
};

/// A checkpoint was written.
struct Save : Context {
  const std::filesystem::path& checkpoint;
};

/// A checkpoint is about to be passed to `TrainerOptions::push`.
struct PushBegin : Context {
  const std::filesystem::path& checkpoint;
};

/// Weights were loaded from a checkpoint, to resume or because it is the best.
struct CheckpointLoaded : Context {
  const std::filesystem::path& checkpoint;
};

/// The user, not the training, called `evaluate()`; raised once for all datasets.
struct EvaluationRunBegin : Context {};

/// The evaluation of one dataset begins; the model is in evaluation mode.
struct EvaluateBegin : Context {
  const std::string_view metric_key_prefix;  ///< "eval", or "eval_NAME" with several datasets.
  const bool is_intermediate = false;        ///< See `Evaluate`.
};

/// `predict()` begins; the model is in evaluation mode.
struct PredictBegin : Context {
  const std::string_view metric_key_prefix;
};

/// An evaluation or prediction batch is about to enter the model.
struct PredictionStepBegin : Context {
  Batch batch;
};

/// An evaluation or prediction batch is done.
struct PredictionStep : Context {
  const Batch& batch;
  const Tensors& output;
  const at::Tensor& loss;  ///< Undefined if the loss needs labels and there are none.
};

/// The metrics of one dataset, before their `Log`: metrics that a handler adds are logged, and may decide
/// which model is best. With several processes, those of rank 0 count. `state.best_metric` isn't updated yet.
struct Evaluate : Context {
  Metrics metrics;
  /// The training evaluates during an epoch (its last step included), because of `eval_steps` or because a
  /// callback requested it. False at the end of an epoch, before the first step, or outside training.
  const bool is_intermediate = false;
};

/// The evaluation of one dataset ended, with or without metrics.
struct EvaluateEnd : Context {};

/// The evaluation of all datasets (one or more) is done: all their metrics, with the dataset's name in each
/// key, as they were logged. These metrics decide which model is best.
struct EvaluateAll : Context {
  Metrics metrics;
  const bool is_intermediate = false;  ///< See `Evaluate`.
};

/// `evaluate()` ended: the metrics of all its datasets, empty if it failed. Changes by handlers reach the
/// caller.
struct EvaluationRunEnd : Context {
  Metrics metrics = {};
};

/// The metrics of a prediction.
struct Predict : Context {
  Metrics metrics;
};

/// `predict()` ended, with or without metrics.
struct PredictEnd : Context {};

/// The training part of an epoch ended; its evaluation comes next.
struct EpochEnd : Context {
  /// True if the epoch was completed, or ended by `should_epoch_stop`. Otherwise the training ends in the
  /// middle of it; a resumed training continues the epoch, which then ends again.
  const bool is_done = false;
};

/// An epoch, including its evaluation, ended.
struct TrainingRunEpochEnd : Context {
  const bool is_done = false;  ///< See `EpochEnd`.
};

/// A phase ended, in a training with the option `phases`.
struct PhaseEnd : Context {
  /// True if its steps are done. Otherwise the training ends in the middle of it; a resumed training
  /// continues the phase, which then ends again.
  const bool is_done = false;
};

/// Training ends before `state.max_steps`; the reason is the text given to `TrainerControl::request_stop` or
/// `StopTraining`. Requests set in `control` here are still honored.
struct Stop : Context {
  const std::string_view reason;
};

/// An exception was thrown. Every callback receives this event, even if another throws meanwhile, before the
/// end events of all open scopes. Afterwards the exception propagates unchanged out of the trainer's method.
struct TrainError : Context {
  const std::exception_ptr& error;
  const std::string_view what;
  const std::string_view callback;  ///< The callback that threw; empty if none did.
  const std::string_view event;     ///< The event being handled.
};

/// Training ended, for whatever reason.
struct TrainEnd : Context {};

/// All events in this file.
using Vocabulary =
    events<InitEnd, DataLoaderCreated, AccumulationPlanned, TrainBegin, PhaseBegin, EpochBegin,
           BatchFetchBegin, BatchFetched, StepBegin, ForwardBegin, BackwardBegin, BackwardEnd, SubstepEnd,
           StepRestarted, StepSkipped, GradientsComplete, GradientsClipped, PreOptimizerStep, OptimizerStep,
           SchedulerStep, StepEnd, Log, LogSamples, SaveBegin, Save, PushBegin, CheckpointLoaded,
           EvaluationRunBegin, EvaluateBegin, PredictBegin, PredictionStepBegin, PredictionStep, Evaluate,
           EvaluateEnd, EvaluateAll, EvaluationRunEnd, Predict, PredictEnd, EpochEnd, TrainingRunEpochEnd,
           PhaseEnd, Stop, TrainError, TrainEnd>;

/// The events with a writable payload.
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
}  // namespace etude::inline v0
