#include "etude/training_arguments.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/base/counting.hpp"
#include "etude/base/error.hpp"
#include "etude/base/faults.hpp"
#include "etude/base/named_format.hpp"
#include "etude/base/utf8.hpp"
#include "etude/reflect/json.hpp"
#include "etude/reflect/key_values.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {
namespace detail {

nlohmann::json no_options() { return nlohmann::json::object(); }

namespace {

bool is_step_count(double value) { return value == std::floor(value) && std::abs(value) < largest_whole; }

void check_lengths(const TrainingArguments& args, Faults& found) {
  const bool has_length = args.max_steps > 0 || !(args.num_train_epochs <= 0);
  found.require(has_length, "num_train_epochs", args.num_train_epochs, "above 0, unless max_steps is given");
  found.require(args.warmup_steps >= 0 && (args.warmup_steps < 1 || is_step_count(args.warmup_steps)),
                "warmup_steps", args.warmup_steps,
                "a whole number of steps >= 0, or a fraction of all steps below 1");
}

void check_finite(const nlohmann::json& value, const std::string& path, Faults& found) {
  if (value.is_number_float() && !std::isfinite(value.get<double>()))
    found.add("{} is not finite: must be a finite number", path);
  if (value.is_structured())
    for (const auto& [name, item] : value.items())
      check_finite(item, value.is_array() ? fmt::format("{}[{}]", path, name) : path + "." + name, found);
}

void check_kwargs(const TrainingArguments& args, Faults& found) {
  const auto& kwargs = args.lr_scheduler_kwargs;
  found.require(kwargs.is_object() || kwargs.is_null(), "lr_scheduler_kwargs", kwargs.type_name(),
                "a JSON object");
  check_finite(kwargs, "lr_scheduler_kwargs", found);
  try {
    parse_key_values(args.optim_args);
  } catch (const ArgumentError& error) {
    found.add("optim_args is '{}': must be name=value,name=value, but {}", args.optim_args, error.what());
  }
  try {
    parse_named_key_values(args.parameter_groups);
  } catch (const ArgumentError& error) {
    found.add("parameter_groups is '{}': must be pattern: name=value, name=value; pattern: ..., but {}",
              args.parameter_groups, error.what());
  }
}

void check_log_lines(const TrainingArguments& args, Faults& found) {
  for (std::size_t i = 0; i < args.log_lines.size(); ++i) {
    try {
      format_fields(args.log_lines[i], [](std::string_view) { return 0.5; });
    } catch (const ArgumentError& error) {
      found.add("log_lines[{}] is {}", i, error.what());
    }
  }
}

void check_intervals(const TrainingArguments& args, Faults& found) {
  const auto check = [&](std::string_view field, const Interval& value) {
    found.require(value.is_valid(), field, value, value.valid_values());
  };
  // Evaluation steps default to the logging steps, which then must be valid even if nothing is logged at
  // them.
  const bool evaluates_by_steps = args.eval_strategy == IntervalStrategy::steps;
  const bool eval_steps_given = args.eval_steps.value_or(0) != Interval(0);
  if (args.logging_strategy == IntervalStrategy::steps || (evaluates_by_steps && !eval_steps_given))
    check("logging_steps", args.logging_steps);
  if (evaluates_by_steps && eval_steps_given) check("eval_steps", *args.eval_steps);
  if (args.save_strategy == SaveStrategy::steps) check("save_steps", args.save_steps);
}

/// Checks for arguments that need evaluations.
void check_evaluations(const TrainingArguments& args, Faults& found) {
  const bool evaluates = args.eval_strategy != IntervalStrategy::no;
  if (!evaluates && traits_of(args.lr_scheduler_type).follows_metric)
    found.add(
        "lr_scheduler_type is {}: eval_strategy must be steps or epoch, since the schedule follows "
        "a metric of the evaluation",
        args.lr_scheduler_type);
  if (!evaluates && args.save_strategy == SaveStrategy::best)
    found.add(
        "save_strategy is best: eval_strategy must be steps or epoch, since evaluation finds the best model");
  if (args.greater_is_better && !args.metric_for_best_model && !args.load_best_model_at_end &&
      args.save_strategy != SaveStrategy::best && !traits_of(args.lr_scheduler_type).follows_metric)
    found.add("greater_is_better is {}: metric_for_best_model must be given, since it names the metric",
              *args.greater_is_better);
  if (!evaluates && args.load_best_model_at_end)
    found.add(
        "load_best_model_at_end is true: eval_strategy must be steps or epoch, since evaluation finds "
        "the best model");
}

void check_trackers(const TrainingArguments& args, Faults& found) {
  for (const auto& name : args.report_to)
    if (args.report_to.size() > 1 && (name == "all" || name == "none"))
      found.add("report_to has '{}' and others: must be alone", name);
}

void check_workers(const TrainingArguments& args, Faults& found) {
  if (args.dataloader_prefetch_factor && args.dataloader_num_workers == 0)
    found.add(
        "dataloader_prefetch_factor is {}: dataloader_num_workers must be at least 1, since the "
        "workers prefetch",
        *args.dataloader_prefetch_factor);
}

void check_precision(const TrainingArguments& args, Faults& found) {
  const auto exclude = [&](bool given, std::string_view name, std::string_view other) {
    if (given) found.add("{} is true: must be false, since {} is true", name, other);
  };
  exclude(args.bf16 && args.fp16, "fp16", "bf16");
  exclude(args.bf16_full_eval && args.fp16_full_eval, "fp16_full_eval", "bf16_full_eval");
  if (!args.pure_bf16) return;
  exclude(args.bf16, "bf16", "pure_bf16");
  exclude(args.fp16, "fp16", "pure_bf16");
  exclude(args.bf16_full_eval, "bf16_full_eval", "pure_bf16");
  exclude(args.fp16_full_eval, "fp16_full_eval", "pure_bf16");
  found.require(traits_of(args.optim).rounds_bfloat16, "optim", args.optim,
                fmt::format("one of {} with pure_bf16, since others round its small updates away",
                            optimizers_with(&OptimizerTraits::rounds_bfloat16)));
}

void check_cuda_graph(const TrainingArguments& args, Faults& found) {
  if (!args.cuda_graph) return;
  const auto refuse = [&](bool given, std::string_view why) { found.refuse(given, "cuda_graph", why); };
  refuse(args.fp16, "with fp16, which looks for overflows on the host in each step");
  refuse(args.pure_bf16, "with pure_bf16, whose updates are rounded by numbers from the host");
  refuse(args.gradient_accumulation_steps > 1, "with gradient_accumulation_steps above 1");
  refuse(args.auto_microbatching, "with auto_microbatching, which changes the size of batches");
  refuse(args.gradient_checkpointing,
         "with gradient_checkpointing, which restores the states of the generators");
  refuse(args.offload_optimizer, "with offload_optimizer, whose updates are computed by the CPU");
}

/// Checks for text that can't be written to a checkpoint.
void check_texts(const TrainingArguments& args, Faults& found) {
  const auto values = to_json_value(args);
  for (const auto& [name, value] : values.items()) {
    nlohmann::json mended = value;
    if (const auto bad = mend_utf8(mended)) found.require(false, name, *bad, "UTF-8");
  }
}

}  // namespace

}  // namespace detail

TrainingArguments plain_loop() {
  return {.optim = OptimizerNames::adamw_torch,
          .weight_decay = 0,
          .max_grad_norm = 0,
          .lr_scheduler_type = SchedulerType::constant,
          .save_strategy = SaveStrategy::no,
          .train_sampling_strategy = SamplingStrategy::sequential};
}

std::vector<std::string> faults(const TrainingArguments& args) {
  detail::Faults found(field_faults(args));
  detail::check_lengths(args, found);
  detail::check_kwargs(args, found);
  detail::check_log_lines(args, found);
  detail::check_intervals(args, found);
  detail::check_evaluations(args, found);
  detail::check_trackers(args, found);
  detail::check_workers(args, found);
  detail::check_precision(args, found);
  detail::check_cuda_graph(args, found);
  detail::check_texts(args, found);
  return found.lines();
}

std::span<const std::pair<std::string_view, std::string_view>> names_elsewhere(const TrainingArguments&) {
  static constexpr std::pair<std::string_view, std::string_view> names[] = {
      {"lr", "learning_rate"},
      {"wd", "weight_decay"},
      {"optimizer", "optim"},
      {"adafactor", "optim"},
      {"momentum", "optim_args"},
      {"param_groups", "parameter_groups"},
      {"layer_decay", "layerwise_learning_rate_decay"},
      {"layer_lr_decay", "layerwise_learning_rate_decay"},
      {"llrd", "layerwise_learning_rate_decay"},
      {"scheduler", "lr_scheduler_type"},
      {"lr_scheduler", "lr_scheduler_type"},
      {"warmup_ratio", "warmup_steps"},
      {"warmup", "warmup_steps"},
      {"epochs", "num_train_epochs"},
      {"num_epochs", "num_train_epochs"},
      {"n_epochs", "num_train_epochs"},
      {"max_epochs", "num_train_epochs"},
      {"steps", "max_steps"},
      {"num_steps", "max_steps"},
      {"max_train_steps", "max_steps"},
      {"batch_size", "per_device_train_batch_size"},
      {"batch", "per_device_train_batch_size"},
      {"bs", "per_device_train_batch_size"},
      {"train_batch_size", "per_device_train_batch_size"},
      {"per_device_batch_size", "per_device_train_batch_size"},
      {"per_gpu_train_batch_size", "per_device_train_batch_size"},
      {"eval_batch_size", "per_device_eval_batch_size"},
      {"val_batch_size", "per_device_eval_batch_size"},
      {"test_batch_size", "per_device_eval_batch_size"},
      {"per_gpu_eval_batch_size", "per_device_eval_batch_size"},
      {"accumulation_steps", "gradient_accumulation_steps"},
      {"accumulate_grad_batches", "gradient_accumulation_steps"},
      {"grad_accum", "gradient_accumulation_steps"},
      {"grad_clip", "max_grad_norm"},
      {"clip_grad", "max_grad_norm"},
      {"clip_grad_norm", "max_grad_norm"},
      {"gradient_clip_val", "max_grad_norm"},
      {"max_norm", "max_grad_norm"},
      {"gradient_clip_value", "max_grad_value"},
      {"clip_grad_value", "max_grad_value"},
      {"evaluation_strategy", "eval_strategy"},
      {"log_every", "logging_steps"},
      {"log_every_n_steps", "logging_steps"},
      {"log_interval", "logging_steps"},
      {"log_steps", "logging_steps"},
      {"log_strategy", "logging_strategy"},
      {"eval_every", "eval_steps"},
      {"save_every", "save_steps"},
      {"group_by_length", "train_sampling_strategy"},
      {"num_workers", "dataloader_num_workers"},
      {"workers", "dataloader_num_workers"},
      {"drop_last", "dataloader_drop_last"},
      {"pin_memory", "dataloader_pin_memory"},
      {"out_dir", "output_dir"},
      {"save_dir", "output_dir"},
      {"checkpoint_dir", "output_dir"},
      {"device", "use_cpu"},
      {"cpu", "use_cpu"},
      {"no_cuda", "use_cpu"},
      {"amp", "bf16"},
      {"mixed_precision", "bf16"},
      {"use_kahan_summation", "optim_args"},
      {"torch_compile", "compiled_graph"},
      {"monitor", "metric_for_best_model"},
  };
  return names;
}

void validate(const TrainingArguments& args) { detail::Faults(faults(args)).check(); }

TrainingArguments normalized(TrainingArguments args) {
  if (args.output_dir == "~" || args.output_dir.starts_with("~/")) {
    if (const char* home = std::getenv("HOME")) args.output_dir.replace(0, 1, home);
  }
  if (args.eval_strategy == IntervalStrategy::steps && args.eval_steps.value_or(0) == Interval(0)) {
    args.eval_steps = args.logging_steps;
  }
  const bool needs_metric = args.load_best_model_at_end || args.save_strategy == SaveStrategy::best ||
                            traits_of(args.lr_scheduler_type).follows_metric;
  if (needs_metric && !args.metric_for_best_model) args.metric_for_best_model = "loss";
  if (args.metric_for_best_model) args.greater_is_better = is_greater_better(args);
  if (args.report)
    args.disable_tqdm = *args.report != ReportMode::bar;
  else if (!args.disable_tqdm)
    args.disable_tqdm = args.log_level > LogLevel::warning && args.log_level != LogLevel::passive;
  if (!args.report) args.report = *args.disable_tqdm ? ReportMode::lines : ReportMode::bar;
  if (args.lr_scheduler_kwargs.is_null()) args.lr_scheduler_kwargs = nlohmann::json::object();
  return args;
}

bool is_greater_better(const TrainingArguments& args) {
  return args.greater_is_better.value_or(!args.metric_for_best_model.value_or("loss").ends_with("loss"));
}

std::int64_t absolute_steps(double steps, std::int64_t max_steps) {
  // Intervals of unused strategies aren't validated.
  if (!(steps >= 0 && steps <= 1e15)) return 0;
  return static_cast<std::int64_t>(steps < 1 ? detail::share_rounded_up(steps, static_cast<double>(max_steps))
                                             : steps);
}

std::int64_t get_warmup_steps(const TrainingArguments& args, std::int64_t max_steps) {
  return absolute_steps(args.warmup_steps, max_steps);
}

void check_report_to(const TrainingArguments& args, const std::vector<std::string_view>& callbacks) {
  for (const auto& tracker : trackers)
    if (std::ranges::find(args.report_to, tracker.name) != args.report_to.end() &&
        std::ranges::find(callbacks, tracker.callback) == callbacks.end())
      throw ArgumentError(fmt::format(
          "report_to has '{}', but the trainer has no {}: must have one in its list, or RuntimeCallbacks and "
          "a call of etude::add_trackers(trainer), of etude/integrations/report_to.hpp, in a program built "
          "with {}",
          tracker.name, tracker.callback, tracker.option));
}

template detail::FlagStruct detail::flag_struct(TrainingArguments&);
template std::vector<detail::JsonField> detail::json_fields(const TrainingArguments&);

bool TrainingArguments::shows(LogLevel level) const {
  const auto least = process_index() == 0 ? log_level : log_level_replica;
  return level >= (least == LogLevel::passive ? LogLevel::warning : least);
}

}  // namespace etude::inline v0
