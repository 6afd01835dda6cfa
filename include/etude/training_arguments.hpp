#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/base/linkage.hpp"
#include "etude/io/launch.hpp"
#include "etude/optimizer_names.hpp"
#include "etude/reflect/command_line.hpp"
#include "etude/reflect/enum.hpp"
#include "etude/reflect/interval.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {
namespace detail {
/// An empty JSON object. Out of line, so that programs don't compile its constructor.
nlohmann::json no_options();
}  // namespace detail

ETUDE_ENUM(IntervalStrategy, no, steps, epoch);
ETUDE_ENUM(SaveStrategy, no, steps, epoch, best);
/// The library that carries the messages between processes.
ETUDE_ENUM(DdpBackend, gloo, nccl, mpi);
ETUDE_ENUM(LogLevel, debug, info, warning, error, critical, passive);
/// What a training prints.
ETUDE_ENUM(ReportMode, bar, lines, quiet);
/// The input tokens counted as seen.
ETUDE_ENUM(InputTokens, no, all, non_padding);
/// The treatment of an update whose loss or gradients aren't finite.
ETUDE_ENUM(OnNonFinite, ignore, stop, skip, restore);
ETUDE_ENUM(SamplingStrategy, random, sequential, group_by_length);

/// Whether training steps run through the model's compiled graph. As text, `automatic` is auto.
enum class CompiledGraphMode { automatic, off, required };
constexpr auto etude_enum_names(CompiledGraphMode) {
  return std::to_array<std::string_view>({"auto", "off", "required"});
}

/// The requirements of a schedule, besides its options.
struct SchedulerTraits {
  /// Changes the learning rate after evaluations, by a metric.
  bool follows_metric = false;
  /// Its shape depends on the number of update steps of the training, whatever its options are.
  bool needs_total_steps = false;
  /// Has no warmup, so `warmup_steps` precede it.
  bool begins_after_warmup = false;
};

/// Expands to `schedule(name, options, traits)` for each learning rate schedule: its name in
/// `TrainingArguments::lr_scheduler_type`, the struct of its options, and its SchedulerTraits. First those of
/// Hugging Face's Trainer, by its names, then those of torch.optim, by the names of their classes.
// clang-format off
#define ETUDE_DETAIL_FOR_SCHEDULES(schedule)                                                                     \
  schedule(linear, LinearOptions, .needs_total_steps = true)                                                     \
  schedule(cosine, CosineOptions, .needs_total_steps = true)                                                     \
  schedule(cosine_with_restarts, CosineWithRestartsOptions, .needs_total_steps = true)                           \
  schedule(polynomial, PolynomialOptions, .needs_total_steps = true)                                             \
  schedule(constant, ConstantOptions, )                                                                          \
  schedule(constant_with_warmup, ConstantWithWarmupOptions, )                                                    \
  schedule(inverse_sqrt, InverseSqrtOptions, )                                                                   \
  schedule(reduce_lr_on_plateau, ReduceLROnPlateauOptions, .follows_metric = true)                               \
  schedule(cosine_with_min_lr, CosineWithMinLrOptions, .needs_total_steps = true)                                \
  schedule(cosine_warmup_with_min_lr, CosineWarmupWithMinLrOptions, .needs_total_steps = true)                   \
  schedule(warmup_stable_decay, WarmupStableDecayOptions, .needs_total_steps = true)                             \
  schedule(greedy, GreedyLROptions, .follows_metric = true)                                                      \
  schedule(step_lr, StepLROptions, .begins_after_warmup = true)                                                  \
  schedule(multi_step_lr, MultiStepLROptions, .begins_after_warmup = true)                                       \
  schedule(constant_lr, ConstantLROptions, .begins_after_warmup = true)                                          \
  schedule(linear_lr, LinearLROptions, .begins_after_warmup = true)                                              \
  schedule(exponential_lr, ExponentialLROptions, .begins_after_warmup = true)                                    \
  schedule(polynomial_lr, PolynomialLROptions, .begins_after_warmup = true)                                      \
  schedule(cosine_annealing_lr, CosineAnnealingLROptions, .begins_after_warmup = true)                           \
  schedule(cosine_annealing_warm_restarts, CosineAnnealingWarmRestartsOptions, .begins_after_warmup = true)      \
  schedule(cyclic_lr, CyclicLROptions, .begins_after_warmup = true)                                              \
  schedule(one_cycle_lr, OneCycleLROptions, .begins_after_warmup = true)                                         \
  schedule(sequential_lr, SequentialLROptions, .begins_after_warmup = true)                                      \
  schedule(chained_scheduler, ChainedSchedulerOptions, .begins_after_warmup = true)
// clang-format on

#define ETUDE_DETAIL_SCHEDULE(name, options, ...) name,
enum class SchedulerType { ETUDE_DETAIL_FOR_SCHEDULES(ETUDE_DETAIL_SCHEDULE) };
#undef ETUDE_DETAIL_SCHEDULE

#define ETUDE_DETAIL_SCHEDULE(name, options, ...) #name,
[[maybe_unused]] constexpr auto etude_enum_names(SchedulerType) {
  return std::to_array<std::string_view>({ETUDE_DETAIL_FOR_SCHEDULES(ETUDE_DETAIL_SCHEDULE)});
}
#undef ETUDE_DETAIL_SCHEDULE

constexpr SchedulerTraits traits_of(SchedulerType type) {
#define ETUDE_DETAIL_SCHEDULE(name, options, ...) SchedulerTraits{__VA_ARGS__},
  constexpr SchedulerTraits traits[] = {ETUDE_DETAIL_FOR_SCHEDULES(ETUDE_DETAIL_SCHEDULE)};
#undef ETUDE_DETAIL_SCHEDULE
  const auto index = static_cast<std::size_t>(type);
  return index < std::size(traits) ? traits[index] : SchedulerTraits{};
}

/// Expands to `tracker(name, callback, option)` for each tracker: its name in `TrainingArguments::report_to`
/// and its callback, both the same as in Hugging Face's Trainer, and the CMake option that it needs.
// clang-format off
#define ETUDE_DETAIL_FOR_TRACKERS(tracker)               \
  tracker(tensorboard, TensorBoardCallback, TENSORBOARD) \
  tracker(wandb, WandbCallback, WANDB)                   \
  tracker(comet_ml, CometCallback, COMET)                \
  tracker(mlflow, MLflowCallback, MLFLOW)                \
  tracker(azure_ml, AzureMLCallback, AZUREML)            \
  tracker(codecarbon, CodeCarbonCallback, CODECARBON)
// clang-format on

/// A tracker's names as text; `option` is its CMake option.
struct TrackerName {
  std::string_view name, callback, option;
};

inline constexpr TrackerName trackers[] = {
#define ETUDE_DETAIL_TRACKER(name, callback, option) {#name, #callback, "ETUDE_" #option},
    ETUDE_DETAIL_FOR_TRACKERS(ETUDE_DETAIL_TRACKER)
#undef ETUDE_DETAIL_TRACKER
};

/// The names allowed in `report_to`.
inline constexpr auto report_to_names = [] {
  std::array<std::string_view, std::size(trackers) + 2> names{"all", "none"};
  for (std::size_t i = 0; i < std::size(trackers); ++i) names[i + 2] = trackers[i].name;
  return names;
}();

/// The names allowed in `include_for_metrics`.
inline constexpr std::string_view metric_inputs[] = {"inputs", "loss"};

/// The user's settings for a training. A Trainer works with a `normalized` copy and leaves the given
/// arguments unchanged.
struct TrainingArguments {
  ETUDE_STRUCT(
      TrainingArguments,
      (std::string, output_dir, "folder for checkpoints and results; ~ is the home folder" | not_empty(),
       "trainer_output"),

      (std::int64_t, per_device_train_batch_size, "examples per training batch and device" | between(1, 1e9),
       8),
      (std::int64_t, per_device_eval_batch_size, "examples per evaluation batch and device" | between(1, 1e9),
       8),
      (std::int64_t, gradient_accumulation_steps, "batches per update step" | between(1, 1e6), 1),
      (bool, auto_find_batch_size,
       "if memory runs out, start again with the initial weights and batches of 0.9 times the size", false),
      (bool, auto_microbatching,
       "if memory runs out, split each batch into smaller parts and add up their gradients", false),
      (double, num_train_epochs, "passes over the training set; a fraction ends within a pass" | finite(),
       3.0),
      (std::int64_t, max_steps,
       "update steps to train for, instead of num_train_epochs; -1 is unset" | between(1, 1e12).or_just(-1),
       -1),

      (OptimizerNames, optim, "the optimizer", OptimizerNames::adamw_torch_fused),
      (std::string, optim_args, "further options of the optimizer, as name=value,name=value", ""),
      (double, learning_rate, "initial learning rate, the peak of the schedule" | at_least(0), 5e-5),
      (double, weight_decay, "decay of all weights but those of norms and biases" | at_least(0), 0.0),
      (std::string, parameter_groups,
       "settings (lr, lr_factor, weight_decay, frozen) of the parameters that a pattern names, as "
       "\"encoder: lr=1e-5; *.bias: weight_decay=0\"; later ones win",
       ""),
      (double, layerwise_learning_rate_decay,
       "factor of the learning rate from each layer of the model to the one before it; 1 is off" |
           above(0).at_most(1),
       1.0),
      (double, adam_beta1,
       "decay of the mean of the gradients in Adam and similar optimizers" | at_least(0).below(1), 0.9),
      (double, adam_beta2, "decay of the mean of their squares" | at_least(0).below(1), 0.999),
      (double, adam_epsilon, "added to the denominator of Adam's step" | above(0), 1e-8),
      (double, max_grad_norm, "clip gradients to this norm; 0 is off" | at_least(0), 1.0),
      (double, max_grad_value, "clip each element of the gradients to this magnitude; 0 is off" | at_least(0),
       0.0),
      (OnNonFinite, on_non_finite,
       "if a loss or gradients aren't finite, before they reach the weights: ignore it, stop, skip the "
       "update, or also restore the weights of some updates before",
       OnNonFinite::ignore),

      (double, label_smoothing_factor,
       "fraction of each label spread over all classes; 0 is off; labels must be aligned "
       "with the outputs: shift those of a causal language model first" |
           at_least(0).below(1),
       0.0),

      (SchedulerType, lr_scheduler_type, "the learning rate schedule", SchedulerType::linear),
      (nlohmann::json, lr_scheduler_kwargs,
       "options of the schedule, as a JSON object or name=value,name=value", detail::no_options()),
      (double, warmup_steps, "update steps of warmup; below 1, a fraction of all steps", 0.0),

      (IntervalStrategy, eval_strategy, "when to evaluate", IntervalStrategy::no),
      (std::optional<Interval>, eval_steps,
       "evaluation interval if eval_strategy is steps: update steps, below 1 a fraction of all, or "
       "1ep, 30min; unset or 0 is logging_steps"),
      (double, eval_delay,
       "epochs (steps, if eval_strategy is steps) before the first evaluation" | at_least(0), 0.0),
      (bool, eval_on_start, "evaluate before the first step", false),
      (bool, prediction_loss_only, "compute only the loss in evaluation", false),
      (bool, eval_enable_grad,
       "enable gradients in evaluations and predictions, for losses and outputs that are derivatives", false),
      (std::optional<std::int64_t>, eval_accumulation_steps,
       "batches of predictions kept on the device before moving them to the host; unset is all" |
           at_least(1)),
      (bool, eval_do_concat_batches, "join the predictions of all batches; otherwise pass them as a list",
       true),
      (bool, batch_eval_metrics, "give compute_metrics one batch at a time", false),
      (std::vector<std::string>, include_for_metrics,
       "additional inputs of compute_metrics" | any_of(metric_inputs)),

      (SaveStrategy, save_strategy, "when to write a checkpoint", SaveStrategy::steps),
      (Interval, save_steps,
       "checkpoint interval if save_strategy is steps: update steps, below 1 a fraction of all, or "
       "1ep, 30min",
       500),
      (std::optional<std::int64_t>, save_total_limit,
       "number of this run's checkpoints to keep, always including the newest and the best; unset is all" |
           at_least(1)),
      (bool, save_only_model, "write the model without the state that resuming needs", false),
      (bool, save_async, "write checkpoints in the background, from a copy in memory", false),
      (bool, save_on_exception, "write a checkpoint when an exception is thrown, if the state is consistent",
       false),
      (bool, enable_jit_checkpoint,
       "on SIGTERM or SIGINT write a checkpoint (unless save_strategy is no) and end the training properly",
       true),
      (bool, restore_callback_states_from_checkpoint, "restore the state of callbacks on resume", true),
      (bool, ignore_data_skip, "on resume, restart the interrupted epoch from its first example", false),
      (bool, load_best_model_at_end, "load the weights of the best evaluation at the end", false),
      (std::optional<std::string>, metric_for_best_model,
       "the metric for the best model, with or without eval_; unset is loss" | not_empty()),
      (std::optional<bool>, greater_is_better,
       "whether higher values of that metric are better; unset is yes unless its name ends in loss"),

      (IntervalStrategy, logging_strategy, "when to log", IntervalStrategy::steps),
      (Interval, logging_steps,
       "logging interval if logging_strategy is steps: update steps, below 1 a fraction of all, or "
       "1ep, 30s",
       500),
      (bool, logging_first_step, "log the first step too", false),
      (bool, logging_nan_inf_filter, "replace a non-finite loss with the mean of previous losses in logs",
       true),
      (InputTokens, include_num_input_tokens_seen,
       "count the input tokens trained on: all, or (non_padding) those of attention_mask, or else those that "
       "aren't the pad_token_id of processing_class",
       InputTokens::no),
      (LogLevel, log_level, "minimum level of messages; passive keeps the default", LogLevel::passive),
      (LogLevel, log_level_replica,
       "the same for the processes other than the first, whose messages often say the same", LogLevel::error),
      (std::optional<ReportMode>, report,
       "what a training prints: a progress bar with logs above it, logs only, or neither; unset is bar or, "
       "with disable_tqdm, lines"),
      (std::vector<std::string>, log_lines,
       "print logs in these fmt formats, whose fields are step and the names of logged values: {epoch:.0f}, "
       "{step}, {loss:.4f}; each log uses every format whose fields it contains; empty prints whole logs",
       {}),
      (std::optional<bool>, disable_tqdm, "no progress bar; unset is yes where log_level is above warning"),
      (std::vector<std::string>, report_to,
       "trackers to log to, or all available ones" | any_of(report_to_names), {}),
      (std::optional<std::string>, run_name, "name of this run for trackers; unset is output_dir"),
      (std::optional<std::string>, trace_file,
       "write the times of phases, steps, events and callbacks to this file, for Perfetto; relative to "
       "output_dir; unset is no trace" |
           not_empty()),

      (std::int64_t, seed, "seed of all random numbers" | at_least(0), 42),
      (std::optional<std::int64_t>, data_seed, "seed of the order of examples; unset is seed" | at_least(0)),
      (bool, full_determinism, "the same results in every run, at the cost of speed", false),
      (bool, bf16,
       "compute forward and backward passes in bfloat16 where that is safe (autocast); weights, losses and "
       "predictions stay float32",
       false),
      (bool, fp16,
       "the same in float16, whose small gradients need a scaled loss: updates whose gradients overflow are "
       "skipped, and don't count as steps",
       false),
      (bool, pure_bf16,
       "keep weights, gradients and moments in bfloat16: with AdamW, 10 bytes per parameter instead of 16, "
       "or 8 with optim_args rounding=stochastic; updates are as precise as in float32, gradients are not",
       false),
      (bool, bf16_full_eval, "evaluate and predict with weights converted to bfloat16", false),
      (bool, fp16_full_eval, "evaluate and predict with weights converted to float16", false),
      (std::optional<bool>, tf32,
       "on a GPU, whether products of float32 may be rounded to TensorFloat-32, in the whole program; unset "
       "is LibTorch's default"),
      (bool, gradient_checkpointing,
       "compute activations again in the backward pass instead of keeping them, between the units of the "
       "model: the layers of a torch::nn::Sequential, or those in etude::Units",
       false),
      (bool, offload_optimizer,
       "on a GPU, keep the optimizer's moments in the memory of the CPU, which then computes the updates",
       false),
      (bool, cuda_graph,
       "on a GPU, capture the training step with its update once and replay it as a whole; batches of "
       "another form run as usual",
       false),
      (CompiledGraphMode, compiled_graph,
       "run training steps through the model's compiled graph, if it has one; auto: where possible, with a "
       "warning for each reason why not; required: each such reason is an error",
       CompiledGraphMode::automatic),
      (bool, use_cpu, "train on the CPU even if there is an accelerator", false),

      (SamplingStrategy, train_sampling_strategy,
       "order of the training examples; group_by_length batches examples of similar length",
       SamplingStrategy::random),
      (bool, dataloader_drop_last, "drop the last training batch of an epoch if it isn't full", false),
      (std::int64_t, dataloader_num_workers,
       "threads that prepare batches; 0 prepares them in the loop" | between(0, 1e4), 0),
      (std::optional<std::int64_t>, dataloader_prefetch_factor,
       "batches that each thread prefetches; unset is 2" | between(1, 1e4)),
      (bool, dataloader_pin_memory, "use pinned memory for faster copies to an accelerator", true),
      (std::optional<std::vector<std::string>>, label_names,
       "names of the labels among the fields of an example; unset is labels" | not_empty()),

      (DdpBackend, ddp_backend, "connects the processes of a training", DdpBackend::gloo),
      (std::int64_t, ddp_timeout, "seconds that a process waits for the others" | between(1, 1e9), 1800),
      (std::int64_t, ddp_bucket_cap_mb,
       "MiB of gradients that are sent at once, while the backward pass still computes others" |
           between(1, 1e6),
       25),
      (bool, ddp_find_unused_parameters,
       "allow parameters that have no gradient in some processes or steps; otherwise they are an error",
       true),
      (bool, ddp_broadcast_buffers,
       "before each step, replace the model's buffers by those of the first process; otherwise only before "
       "evaluations and checkpoints",
       true),
      (bool, average_tokens_across_devices,
       "divide a loss that counts labels by the number of labels of all processes, not of each one", true),
      (bool, logging_by_rank,
       "also log each process's value of everything that callbacks log, as NAME_rank_0, NAME_rank_1, ...",
       false));

  /// The processes of the training, as its trainer finds them; not an argument.
  Launch launch = {};
  std::int64_t process_index() const { return launch.rank; }
  std::int64_t local_process_index() const { return launch.local_rank; }
  std::int64_t world_size() const { return launch.world_size; }

  /// Whether this process's level (`log_level` in rank 0, `log_level_replica` in the others) shows messages
  /// of this level.
  bool shows(LogLevel level) const;

  friend bool operator==(const TrainingArguments&, const TrainingArguments&) = default;
};

/// Arguments that match a hand-written loop: updates bit-identical to torch::optim::AdamW's, a constant
/// learning rate, no clipping of gradients, no weight decay, the examples in order, and no checkpoints. (The
/// defaults of TrainingArguments are Hugging Face's.)
TrainingArguments plain_loop();

/// All problems of `args`, one per line, such as "learning_rate is -1: must be ..."; empty if there are none.
std::vector<std::string> faults(const TrainingArguments& args);

/// Names that other programs and older versions use for arguments, each with our name, for suggestions.
std::span<const std::pair<std::string_view, std::string_view>> names_elsewhere(const TrainingArguments&);

/// Throws ArgumentError that lists all `faults(args)`, if there are any.
void validate(const TrainingArguments& args);

/// Resolves the open choices in `args`: `~` in output_dir, eval_steps if needed, the metric for the best
/// model and its direction.
TrainingArguments normalized(TrainingArguments args);

/// Whether a greater `metric_for_best_model` is better: `greater_is_better` or, if it is unset, whether the
/// metric's name doesn't end in "loss".
bool is_greater_better(const TrainingArguments& args);

/// Converts `steps` to update steps if `max_steps` are planned: a value below 1 is a fraction of `max_steps`,
/// rounded up.
std::int64_t absolute_steps(double steps, std::int64_t max_steps);

/// The number of warmup steps if `max_steps` are planned.
std::int64_t get_warmup_steps(const TrainingArguments& args, std::int64_t max_steps);

/// Throws ArgumentError for a tracker in `report_to` whose callback isn't among `callbacks`.
void check_report_to(const TrainingArguments& args, const std::vector<std::string_view>& callbacks);

extern template detail::FlagStruct detail::flag_struct(TrainingArguments&);
extern template std::vector<detail::JsonField> detail::json_fields(const TrainingArguments&);

}  // namespace etude::inline v0
