#include "etude/loop/options.hpp"

#include <torch/data/samplers/distributed.h>
#include <torch/nn/modules/loss.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <set>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "etude/base/faults.hpp"
#include "etude/base/message.hpp"
#include "etude/base/utf8.hpp"
#include "etude/data/samplers.hpp"
#include "etude/libtorch/blas.hpp"

namespace etude::inline v0 {
namespace detail {

namespace {

/// How the tensors of the option `optimizer` match the model's.
struct OptimizerMatch {
  std::int64_t common = 0;   ///< the optimizer's that belong to the model or the loss module
  std::int64_t foreign = 0;  ///< the optimizer's that belong to neither
  std::int64_t missing = 0;  ///< the model's trainable ones that the optimizer lacks
};

OptimizerMatch match_optimizer(const TrainerOptions& options) {
  std::unordered_set<const void*> known, held;
  const auto parameters = options.model.parameters();
  for (const auto& parameter : parameters) known.insert(parameter.unsafeGetTensorImpl());
  if (const auto& loss = options.loss.module())
    for (const auto& parameter : loss->parameters()) known.insert(parameter.unsafeGetTensorImpl());
  OptimizerMatch match;
  for (const auto& group : options.optimizer->param_groups())
    for (const auto& parameter : group.params()) {
      held.insert(parameter.unsafeGetTensorImpl());
      ++(known.contains(parameter.unsafeGetTensorImpl()) ? match.common : match.foreign);
    }
  match.missing = std::ranges::count_if(parameters, [&](const torch::Tensor& parameter) {
    return parameter.requires_grad() && !held.contains(parameter.unsafeGetTensorImpl());
  });
  return match;
}

/// Everything wrong with the options of a training of one phase.
Faults faults_of_training(const TrainerOptions& options) {
  Faults found(faults(options.args));
  const auto& args = options.args;
  if (!options.model && !options.model_init) found.add("model is not set: must be, or else model_init");
  if (options.model && options.model_init)
    found.add("model and model_init are both set: must be one of them");
  if (options.loss && options.compute_loss)
    found.add("loss and compute_loss are both set: must be one of them");
  if (args.label_smoothing_factor != 0 &&
      (options.compute_loss ||
       (options.loss && !dynamic_cast<torch::nn::CrossEntropyLossImpl*>(options.loss.module().get()))))
    found.add(
        "label_smoothing_factor is {}: must be 0 unless loss is torch::nn::CrossEntropyLoss, or the "
        "model computes its loss itself",
        args.label_smoothing_factor);
  if (options.model_init && options.optimizer)
    found.add(
        "optimizer is set: must be unset with model_init, which makes a model whose parameters it doesn't "
        "hold");
  if (options.model && options.optimizer) {
    // A completely frozen model may serve to train something else.
    if (const auto match = match_optimizer(options); match.common == 0 && match.missing > 0)
      found.add(
          "optimizer holds none of the model's parameters: must be made from those of the module that is "
          "given as model");
  }
  const auto exclude_optimizer = [&](bool given, std::string_view field) {
    if (given && options.optimizer)
      found.add(
          "{} and optimizer are both set: must be one of them, since that optimizer has its own "
          "groups",
          field);
  };
  exclude_optimizer(!options.parameter_groups.empty() || !args.parameter_groups.empty(), "parameter_groups");
  exclude_optimizer(args.layerwise_learning_rate_decay != 1, "layerwise_learning_rate_decay");
  if (options.lr_scheduler.needs_torch_optimizer() && !options.optimizer)
    found.add("lr_scheduler is one of torch's: optimizer must be set too, to the one that it schedules");
  if (args.eval_strategy != IntervalStrategy::no && options.eval_dataset.empty())
    found.add("eval_strategy is {}: must be no, or .eval_dataset must be set", args.eval_strategy);
  std::set<std::string_view> eval_names;
  for (const auto& [name, dataset] : options.eval_dataset) {
    if (!dataset) found.add("eval_dataset {} is not set: must be a dataset", quoted_utf8(name));
    if (!is_utf8(name))
      found.add("eval_dataset has the name {}: must be UTF-8", quoted_utf8(name));
    else if (options.eval_dataset.named() && name.empty())
      found.add("eval_dataset has an empty name: must be one that its metrics can be named by");
    else if (!eval_names.insert(name).second)
      found.add("eval_dataset has the name '{}' twice: must be a name for each dataset", name);
  }
  if (args.batch_eval_metrics && options.compute_metrics && !options.compute_metrics.takes_compute_result())
    found.add("batch_eval_metrics is true: compute_metrics must take a second argument, bool compute_result");
  if (!args.batch_eval_metrics && !options.compute_metrics.takes_whole())
    found.add("batch_eval_metrics is false: must be true for a compute_metrics that takes compute_result");
  if (options.train_dataset && !options.train_dataset.size() && args.max_steps <= 0)
    found.add("max_steps is {}: must be positive, since train_dataset has no length to count epochs by",
              args.max_steps);
  if (options.train_dataset && !options.train_dataset.is_indexed() && !options.train_sampler &&
      args.train_sampling_strategy == SamplingStrategy::group_by_length)
    found.add("train_sampling_strategy is group_by_length: must be another, since train_dataset is a stream");
  std::set<std::string_view> variables;
  for (const auto& [name, variable] : options.program_state)
    if (name.empty() || !is_utf8(name) || name == "ranks" || name.starts_with("ranks."))
      found.add("program_state has the name {}: must be UTF-8, not empty, and not begin with 'ranks.'",
                quoted_utf8(name));
    else if (!variables.insert(name).second)
      found.add("program_state has the name '{}' twice: must be a name for each variable", name);
  add_faults_of_optimizers(options, found);
  return found;
}

/// Everything wrong with the phases, and with the options in each of them.
Faults faults_of_phases(const TrainerOptions& options) {
  Faults found;
  if (options.args.max_steps > 0)
    found.add("max_steps is {}: must not be set with phases, each of which has a length",
              options.args.max_steps);
  std::set<std::string_view> names;
  std::vector<std::vector<std::string>> all;  // the faults of each
  for (const auto& [name, phase] : options.phases) {
    if (name.empty() || !is_utf8(name))
      found.add("phases has the name {}: must be UTF-8 and not empty", quoted_utf8(name));
    else if (!names.insert(name).second)
      found.add("phases has the name '{}' twice: must be a name for each phase", name);
    if ((phase.max_steps > 0) == (phase.num_train_epochs > 0) || phase.max_steps < 0)
      found.add("phase '{}': num_train_epochs is {} and max_steps is {}: one of them must be positive", name,
                phase.num_train_epochs, phase.max_steps);
    if (phase.per_device_train_batch_size && options.args.auto_find_batch_size)
      found.add("phase '{}': per_device_train_batch_size is {}: must not be set with auto_find_batch_size",
                name, *phase.per_device_train_batch_size);
    all.push_back(faults_of_training(in_phase(options, phase)).lines());
  }
  const auto is_in_all = [&](const std::string& fault) {
    return std::ranges::all_of(all,
                               [&](const auto& faults) { return std::ranges::count(faults, fault) > 0; });
  };
  for (std::size_t i = 0; i < all.size(); ++i)
    for (const auto& fault : all[i])
      if (!is_in_all(fault))
        found.add("phase '{}': {}", options.phases[i].first, fault);
      else if (i == 0)
        found.add("{}", fault);
  return found;
}

}  // namespace

TrainerOptions in_phase(TrainerOptions options, const PhaseOptions& phase) {
  const auto set = [](auto& option, const auto& own) {
    if (own) option = own;
  };
  options.args = in_phase(options.args, phase);
  if (phase.compute_loss) options.loss = {};
  set(options.compute_loss, phase.compute_loss);
  set(options.train_dataset, phase.train_dataset);
  set(options.optimizer, phase.optimizer);
  set(options.lr_scheduler, phase.lr_scheduler);
  options.parameter_groups.insert(options.parameter_groups.end(), phase.parameter_groups.begin(),
                                  phase.parameter_groups.end());
  return options;
}

TrainingArguments in_phase(TrainingArguments args, const PhaseOptions& phase) {
  args = arguments_of(std::move(args), phase);
  args.max_steps = phase.max_steps > 0 ? phase.max_steps : -1;
  if (phase.num_train_epochs > 0) args.num_train_epochs = phase.num_train_epochs;
  if (phase.per_device_train_batch_size)
    args.per_device_train_batch_size = *phase.per_device_train_batch_size;
  return args;
}

}  // namespace detail

void check_options(const TrainerOptions& options) {
  (options.phases.empty() ? detail::faults_of_training(options) : detail::faults_of_phases(options)).check();
}

namespace {

DataLoaderOptions loader_options(const TrainerOptions& options, const TrainingArguments& args) {
  DataLoaderOptions loader;
  loader.num_workers = static_cast<int>(args.dataloader_num_workers);
  loader.prefetch_factor = static_cast<int>(args.dataloader_prefetch_factor.value_or(2));
  loader.pin_memory = args.dataloader_pin_memory;
  loader.collator = options.data_collator.function();
  if (args.label_names) loader.label_names = *args.label_names;
  return loader;
}

}  // namespace

DataLoaderOptions train_loader_options(const TrainerOptions& options, const TrainingArguments& args) {
  auto loader = loader_options(options, args);
  loader.name = "train_dataset";
  loader.drop_last = args.dataloader_drop_last;
  loader.batch_size = args.per_device_train_batch_size;
  loader.seed = static_cast<std::uint64_t>(args.data_seed.value_or(args.seed));
  loader.sampler = options.train_sampler;
  loader.shuffle = args.train_sampling_strategy == SamplingStrategy::random &&
                   options.train_dataset.is_indexed() && !options.train_dataset.streams() &&
                   !options.train_sampler;
  if (!options.train_dataset.is_divided() &&
      !dynamic_cast<const torch::data::samplers::DistributedSampler<>*>(options.train_sampler.get()))
    loader.part = {args.process_index(), args.world_size()};
  if (args.train_sampling_strategy == SamplingStrategy::group_by_length && !options.train_sampler)
    loader.sampler = std::make_shared<LengthGroupedSampler>(
        lengths_of(options.train_dataset), loader.global_batch_size() * args.gradient_accumulation_steps);
  return loader;
}

DataLoaderOptions eval_loader_options(const TrainerOptions& options, const TrainingArguments& args,
                                      const Dataset& dataset) {
  auto loader = loader_options(options, args);
  loader.name = "the dataset to evaluate or predict";
  loader.batch_size = args.per_device_eval_batch_size;
  if (!dataset.is_divided()) loader.part = {args.process_index(), args.world_size()};
  return loader;
}

void warn_of_stale_optimizer(const TrainerOptions& options) {
  if (!options.model || !options.optimizer) return;
  const auto match = detail::match_optimizer(options);
  if (match.foreign > 0 && match.missing > 0)
    message(
        options.args, LogLevel::warning,
        "optimizer doesn't hold {} of the model's parameter tensors, and holds {} that aren't the model's: "
        "make it after the model has all its layers",
        match.missing, match.foreign);
}

void warn_of_greatest_error(const TrainingArguments& args) {
  if (!args.metric_for_best_model || args.greater_is_better) return;
  const std::string_view metric = *args.metric_for_best_model;
  static constexpr std::array<std::string_view, 12> errors{"error", "error_rate", "mae",        "mse",
                                                           "rmse",  "wer",        "cer",        "perplexity",
                                                           "ppl",   "nll",        "divergence", "distance"};
  const auto is_named = [&](std::string_view error) {
    return metric == error || metric.ends_with('_' + std::string(error));
  };
  if (std::ranges::any_of(errors, is_named))
    message(
        args, LogLevel::warning,
        "metric_for_best_model is {}, and its greatest value is the best, since greater_is_better isn't set "
        "and the name doesn't end in loss: set greater_is_better to false if it is an error",
        metric);
}

void warn_of_slow_blas(const TrainingArguments& args) {
  static const double gflops = blas_gflops();
  if (gflops < slow_blas_gflops)
    message(args, LogLevel::warning,
            "this LibTorch multiplies matrices at {:.1f} GFLOP/s, a small fraction of a tuned BLAS: on "
            "Debian, install libopenblas0-pthread",
            gflops);
}

}  // namespace etude::inline v0
