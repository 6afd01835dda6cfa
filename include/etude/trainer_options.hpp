#pragma once

#include <torch/optim/optimizer.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "etude/callback.hpp"
#include "etude/data/batch.hpp"
#include "etude/data/collate.hpp"
#include "etude/data/data_loader.hpp"
#include "etude/data/dataset.hpp"
#include "etude/data/processing_class.hpp"
#include "etude/data/program_state.hpp"
#include "etude/data/tensors.hpp"
#include "etude/io/file_system.hpp"
#include "etude/libtorch/random_state.hpp"
#include "etude/metrics/eval_prediction.hpp"
#include "etude/metrics/time_by_activity.hpp"
#include "etude/model/compute_loss_option.hpp"
#include "etude/model/loss.hpp"
#include "etude/model/model.hpp"
#include "etude/model/modules.hpp"
#include "etude/optim/lr_scheduler.hpp"
#include "etude/optim/optimizer.hpp"
#include "etude/optim/parameter_rules.hpp"
#include "etude/trainer_state.hpp"
#include "etude/training_arguments.hpp"

namespace etude::inline v0 {

namespace mistake {
template <class Signature, class Given>
struct option_is_a_function_so_declare_yours_as;
}  // namespace mistake

/// One dataset to evaluate on, or several by name: `{{"news", news}, {"books", books}}`. A default
/// `Dataset()` means none.
class EvalDatasets {
 public:
  EvalDatasets() = default;
  template <class D>
    requires(!std::derived_from<std::remove_cvref_t<D>, EvalDatasets> &&
             !std::convertible_to<D, const std::map<std::string, Dataset>&>)
  EvalDatasets(D&& dataset) {
    if (Dataset made(std::forward<D>(dataset)); made) entries_.emplace_back("", std::move(made));
  }
  /// Inputs and labels, one example per row.
  EvalDatasets(torch::Tensor inputs, torch::Tensor labels)
      : EvalDatasets(Dataset(std::move(inputs), std::move(labels))) {}
  EvalDatasets(std::initializer_list<std::pair<std::string, Dataset>> named)
      : entries_(named), named_(true) {}
  EvalDatasets(const std::map<std::string, Dataset>& named)
      : entries_(named.begin(), named.end()), named_(true) {}

  bool empty() const { return entries_.empty(); }
  bool named() const { return named_; }
  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }

 private:
  std::vector<std::pair<std::string, Dataset>> entries_;
  bool named_ = false;
};

/// A shared pointer that also takes a unique pointer or an object, both with std::move, and has a readable
/// compile error for anything else, which designated initializers don't give.
template <class T>
class SharedOption : public std::shared_ptr<T> {
 public:
  SharedOption() = default;
  template <class Given>
    requires(!std::derived_from<std::remove_cvref_t<Given>, SharedOption>)
  SharedOption(Given&& given) : std::shared_ptr<T>(pointer(std::forward<Given>(given))) {}

 private:
  template <class Given>
  static std::shared_ptr<T> pointer(Given&& given) {
    constexpr bool is_pointer = std::convertible_to<Given, std::shared_ptr<T>>;
    constexpr bool is_moved = std::derived_from<std::remove_cvref_t<Given>, T> &&
                              !std::is_reference_v<Given> && std::move_constructible<Given>;
    static_assert(
        is_pointer || is_moved,
        "etude: optimizer and train_sampler are an object or a unique_ptr, given with std::move, or "
        "a shared_ptr, of a class that derives from torch::optim::Optimizer or "
        "torch::data::samplers::Sampler<>");
    if constexpr (is_pointer)
      return std::forward<Given>(given);
    else if constexpr (is_moved)
      return std::make_shared<Given>(std::move(given));
    else
      return nullptr;
  }
};

/// A function with a readable compile error for the wrong signature. It has no call operator, since a
/// `std::function` made from a callable object is never empty, even if the option is.
template <class Signature>
class FunctionOption {
  using Function = std::function<Signature>;

 public:
  FunctionOption() = default;
  template <class Given>
    requires(!std::same_as<std::remove_cvref_t<Given>, FunctionOption>)
  FunctionOption(Given&& given) : function_(made_of(std::forward<Given>(given))) {}

  explicit operator bool() const { return static_cast<bool>(function_); }
  const Function& function() const { return function_; }
  operator const Function&() const { return function_; }

 private:
  template <class Given>
  static Function made_of(Given&& given) {
    using Mistake = mistake::option_is_a_function_so_declare_yours_as<Signature, std::remove_cvref_t<Given>>;
    if constexpr (detail::expect<!detail::HoldsModule<std::remove_cvref_t<Given>>, Mistake>())
      if constexpr (detail::expect<std::convertible_to<Given, Function>, Mistake>())
        return std::forward<Given>(given);
    return {};
  }

  Function function_;
};

/// How the learning rate changes over the steps, as the user specifies it.
class LRSchedulerOption {
 public:
  LRSchedulerOption() = default;
  template <class F>
    requires std::is_invocable_r_v<double, F&, std::int64_t>
  LRSchedulerOption(F factor) : LRSchedulerOption(Schedule(std::move(factor)), nullptr) {}
  template <class F>
    requires(!std::is_invocable_r_v<double, F&, std::int64_t> &&
             std::is_invocable_r_v<Schedule, F&, const TrainerRunConfig&>)
  LRSchedulerOption(F schedule_of)
      : LRSchedulerOption(std::function<Schedule(const TrainerRunConfig&)>(schedule_of)) {}
  template <std::derived_from<torch::optim::LRScheduler> S>
  LRSchedulerOption(std::shared_ptr<S> scheduler) : LRSchedulerOption(nullptr, std::move(scheduler)) {}
  template <class Other>
    requires(!std::derived_from<Other, LRSchedulerOption> &&
             !std::is_invocable_r_v<double, Other&, std::int64_t> &&
             !std::is_invocable_r_v<Schedule, Other&, const TrainerRunConfig&> &&
             !std::convertible_to<Other, std::shared_ptr<torch::optim::LRScheduler>>)
  LRSchedulerOption(Other) {
    static_assert(
        !sizeof(Other),
        "etude: lr_scheduler is a function of the step (std::int64_t) that returns a factor, a function "
        "of const etude::TrainerRunConfig& that returns such a function, or a shared_ptr to a scheduler "
        "of torch::optim");
  }

  explicit operator bool() const { return static_cast<bool>(make_); }
  std::unique_ptr<LRScheduler> operator()(Optimizer& optimizer, const TrainerRunConfig& run) const;
  bool needs_torch_optimizer() const { return needs_torch_optimizer_; }

 private:
  LRSchedulerOption(Schedule factor, std::shared_ptr<torch::optim::LRScheduler> scheduler);

  LRSchedulerOption(std::function<Schedule(const TrainerRunConfig&)> schedule_of);

  std::function<std::unique_ptr<LRScheduler>(Optimizer&, const TrainerRunConfig&)> make_;
  bool needs_torch_optimizer_ = false;
};

/// The result of one batch of an evaluation.
struct PredictionStepOutput {
  torch::Tensor loss;  ///< One element; undefined if it needs labels and there are none.
  Tensors logits;      ///< The outputs.
  Tensors labels;
  Tensors logs = {};  ///< parts of the loss by name, one element each
  /// As in LossOutput: true if the loss is divided by the number of labels of its batch.
  bool counts_items = false;
};

/// Expands to `argument(type, name)` for each of the trainer's arguments that an optimizer or a phase may
/// replace.
// clang-format off
#define ETUDE_DETAIL_FOR_OWN_ARGUMENTS(argument) \
  argument(double, learning_rate)                \
  argument(double, weight_decay)                 \
  argument(OptimizerNames, optim)                \
  argument(std::string, optim_args)              \
  argument(SchedulerType, lr_scheduler_type)     \
  argument(nlohmann::json, lr_scheduler_kwargs)  \
  argument(double, warmup_steps)                 \
  argument(double, max_grad_norm)                \
  argument(double, max_grad_value)
// clang-format on
#define ETUDE_DETAIL_OPTIONAL(type, name) std::optional<type> name = {};

/// One of several optimizers. Fields that aren't set take the trainer's arguments.
struct OptimizerOptions {
  /// Patterns of the modules and parameters that it updates, as in `parameter_groups`. By default, the module
  /// that has the optimizer's name.
  std::vector<std::string> parameters = {};
  ETUDE_DETAIL_FOR_OWN_ARGUMENTS(ETUDE_DETAIL_OPTIONAL)
  /// The loss that this optimizer minimizes, instead of the trainer's. If one optimizer has a loss, all must
  /// have one. Each step then takes the optimizers in turn: it computes the optimizer's loss on the batches,
  /// runs the backward pass to the optimizer's parameters, and updates them.
  ComputeLossOption compute_loss = {};
  /// The optimizer makes an update only in the first of every `every` steps.
  std::int64_t every = 1;
  /// A torch optimizer, used as it is, for the parameters that it holds.
  SharedOption<torch::optim::Optimizer> optimizer = nullptr;
  /// Like the trainer's option `lr_scheduler`.
  LRSchedulerOption lr_scheduler = {};
};

/// The settings that one phase of a training changes. Fields that aren't set take the trainer's arguments and
/// options.
struct PhaseOptions {
  double num_train_epochs = 0;  ///< its length
  std::int64_t max_steps = 0;   ///< its length in update steps, instead
  std::optional<std::int64_t> per_device_train_batch_size = {};
  /// A `warmup_steps` below 1 is a fraction of the phase's steps.
  ETUDE_DETAIL_FOR_OWN_ARGUMENTS(ETUDE_DETAIL_OPTIONAL)
  ComputeLossOption compute_loss = {};
  Dataset train_dataset = {};
  SharedOption<torch::optim::Optimizer> optimizer = nullptr;
  /// Rules that are applied after the trainer's. `frozen` lasts only for the phase: `{{"*", {.frozen =
  /// true}}, {"head", {.frozen = false}}}` trains only the head.
  ParameterRules parameter_groups = {};
  LRSchedulerOption lr_scheduler = {};
};

#undef ETUDE_DETAIL_OPTIONAL

/// Everything that a trainer is built from. Only `model` (or `model_init`) is required; the rest has
/// defaults.
struct TrainerOptions {
  /// A `shared_ptr` or `ModuleHolder` of any torch module with a `forward`, or a `torch::jit::Module`. With
  /// `compute_loss` it needs no `forward`, unless it predicts.
  Model model = {};
  /// Makes a new model at the start of each `train()`, after seeding. Use it instead of `model`.
  FunctionOption<Model()> model_init = {};
  TrainingArguments args = {};
  /// A torch loss module, or any callable `(output, target) -> Tensor`, optionally with a third parameter
  /// `num_items_in_batch`, which declares that the loss is a sum over items divided by that number. Without a
  /// loss, the model gets the labels after its inputs, and its output named "loss", or else its first, is the
  /// loss.
  Loss loss = {};
  /// Computes the loss from a batch, instead of `loss`: see ComputeLossOption. `num_items` is the number of
  /// labels in the update (other than -100).
  ComputeLossOption compute_loss = {};
  FunctionOption<Batch(std::vector<Example>)> data_collator = {};
  Dataset train_dataset = {};
  EvalDatasets eval_dataset = {};
  ComputeMetrics compute_metrics = {};
  /// Used instead of the optimizer that `args.optim` names. Must hold parameters of the model. A shared_ptr,
  /// or a unique_ptr or an object that the trainer takes over: `.optimizer = std::move(optimizer)`.
  SharedOption<torch::optim::Optimizer> optimizer = nullptr;
  /// Settings for the parameters that match a pattern: `{{"encoder", {.lr = 1e-5}}, {"*.bias", {.weight_decay
  /// = 0}}}`. The rules in `args.parameter_groups` are applied after these. A schedule multiplies each
  /// group's rate.
  ParameterRules parameter_groups = {};
  /// Replaces the schedule that `args.lr_scheduler_type` names: a function of the step (0 at first) that
  /// returns a factor for the initial learning rates; a function of `const TrainerRunConfig&` that returns
  /// such a function; or a torch scheduler over `optimizer`.
  LRSchedulerOption lr_scheduler = {};
  /// Several optimizers by name, instead of one: `{{"generator", {.learning_rate = 2e-4}}, {"discriminator",
  /// {}}}`. Together they update each parameter at most once a step.
  std::vector<std::pair<std::string, OptimizerOptions>> optimizers = {};
  /// The phases of `train()`, by name, one after another: `{{"adam", {.max_steps = 2000}}, {"lbfgs",
  /// {.max_steps = 100, .learning_rate = 1, .optim = OptimizerNames::lbfgs}}}`. They share the model, the
  /// callbacks, the history and the checkpoints; `global_step` counts through all of them. Each makes its
  /// optimizer and schedule anew, and begins an epoch of its data.
  std::vector<std::pair<std::string, PhaseOptions>> phases = {};
  /// Called with (outputs, labels) of each evaluation batch; its result is kept for `compute_metrics`.
  FunctionOption<Tensors(const Tensors&, const Tensors&)> preprocess_logits_for_metrics = {};
  ProcessingClass processing_class = {};
  /// The order of the training examples, instead of `args.train_sampling_strategy`.
  SharedOption<torch::data::samplers::Sampler<>> train_sampler = nullptr;
  /// Your own generators, by name, whose state is saved in checkpoints and restored.
  StatefulGenerators generators = {};
  /// Your program's own variables, by name, whose values are saved in checkpoints and restored: `{{"replay",
  /// replay}, {"tick", tick}}`. See ProgramVariable. They must outlive the trainer.
  ProgramState program_state = {};
  /// Checkpoints are written through this instead of plain files.
  std::shared_ptr<FileSystem> file_system = nullptr;
  /// Called after each save with the path of the finished checkpoint, for example to upload or copy it.
  FunctionOption<void(const std::filesystem::path&)> push = {};

  FileSystem& files() const { return file_system ? *file_system : default_file_system(); }

  /// Writes the files that go next to the weights of `of_model` to a folder: the model's, such as the
  /// config.json of an exported model, and those of `processing_class`. `state` holds the weights that are
  /// saved.
  void save_companions(const Model& of_model, const std::vector<NamedTensor>& state,
                       const std::filesystem::path& folder) const;
};

/// A trial of a hyperparameter search, for the training that runs it.
struct HyperparameterTrial {
  std::string name;       ///< `state.trial_name`
  nlohmann::json params;  ///< `state.trial_params`: its hyperparameters, by name
  /// Called after each evaluation of the training, with its metrics; true ends the training.
  std::function<bool(const Metrics& metrics, const TrainerState& state)> prune = {};
};

/// Options of `train()`.
struct TrainOptions {
  /// true: the newest complete checkpoint in `output_dir`; a path: that checkpoint; `if_any`: the newest, or
  /// from scratch if there is none.
  struct Resume {
    struct IfAny {};
    Resume() = default;
    Resume(IfAny) : newest(true), may_be_none(true) {}
    Resume(bool newest_) : newest(newest_) {}
    template <std::integral Number>
      requires(!std::same_as<Number, bool>)
    Resume(Number) = delete;  // pass the checkpoint's path
    /// Throws ArgumentError for a null pointer.
    Resume(const char* path_) : path(path_ ? path_ : throw_null()) {}
    Resume(std::nullptr_t) = delete;  // use false to start from scratch
    Resume(std::string path_) : path(std::move(path_)) {}
    Resume(std::filesystem::path path_) : path(std::move(path_)) {}
    Resume(const std::optional<std::filesystem::path>& path_) : path(path_.value_or("")) {}
    explicit operator bool() const { return newest || !path.empty(); }

    bool newest = false;
    bool may_be_none = false;
    std::filesystem::path path = {};

   private:
    [[noreturn]] static const char* throw_null();
  };
  Resume resume_from_checkpoint = {};
  /// Makes this training a trial of `hyperparameter_search`, or of your own search.
  std::optional<HyperparameterTrial> trial = {};
};

/// For `resume_from_checkpoint`: resumes from the newest checkpoint if one exists, so that the same command
/// starts and resumes a training.
inline constexpr TrainOptions::Resume::IfAny if_any;

/// The result of `train()`.
struct TrainOutput {
  std::int64_t global_step = 0;
  /// The mean over all update steps of the run, including those before a resume; NaN if there were none.
  double training_loss = std::numeric_limits<double>::quiet_NaN();
  Metrics metrics;          ///< The last logged summary: train_runtime, train_loss, ...
  std::string stop_reason;  ///< Why it ended before `max_steps`; empty if it didn't.
  TimeByActivity time_by_activity;
};

/// The result of `step()`.
struct StepOutput {
  /// The mean loss of the update that this call made, one element on the device. The call doesn't wait for
  /// the device. With several processes, it is this process's share of the loss. Undefined if the call made
  /// no update.
  torch::Tensor loss = {};
  std::int64_t global_step = 0;
  /// True if the training has reached its end: only `finish()` is left to call.
  bool should_stop = false;
  /// The reason; empty if `max_steps` are done.
  std::string stop_reason = {};
};

/// Overrides of the trainer's options for one `evaluate()`.
struct EvaluateOptions {
  EvalDatasets eval_dataset = {};
  std::vector<std::string> ignore_keys = {};  ///< Names of model outputs that aren't predictions.
  std::string metric_key_prefix = "eval";
};

struct PredictOptions {
  std::vector<std::string> ignore_keys = {};
  std::string metric_key_prefix = "test";
};

/// The result of `predict()`: the predictions and labels of all examples, in order, on the CPU.
struct PredictionOutput {
  Tensors predictions;
  Tensors label_ids;
  Metrics metrics;
};

}  // namespace etude::inline v0
