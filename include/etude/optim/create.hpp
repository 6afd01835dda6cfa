#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>
#include "etude/error.hpp"
#include "etude/optim/adafactor.hpp"
#include "etude/optim/adagrad.hpp"
#include "etude/optim/adam.hpp"
#include "etude/optim/lbfgs.hpp"
#include "etude/optim/lion.hpp"
#include "etude/optim/lr_scheduler.hpp"
#include "etude/optim/parameter_groups.hpp"
#include "etude/optim/rmsprop.hpp"
#include "etude/optim/sgd.hpp"
#include "etude/reflect/key_values.hpp"
#include "etude/training_arguments.hpp"

namespace etude {
namespace detail {

inline std::vector<ParameterGroup> groups_of(const std::vector<ParameterGroup>& groups, double) {
  return groups;
}
inline std::vector<ParameterGroup> groups_of(const NamedTensors& parameters, double weight_decay) {
  return parameter_groups(parameters, weight_decay);
}
inline std::vector<ParameterGroup> groups_of(const torch::nn::Module& module, double weight_decay) {
  return parameter_groups(module, weight_decay);
}

/// The options that `args` give: first the fields that every optimizer shares, then `optim_args`.
template <typename Options>
Options optimizer_options(const TrainingArguments& args, Options options = {}) {
  options.lr = args.learning_rate;
  if constexpr (requires { options.weight_decay; }) options.weight_decay = args.weight_decay;
  if constexpr (requires { options.beta2; }) {
    options.beta1 = args.adam_beta1;
    options.beta2 = args.adam_beta2;
  }
  if constexpr (requires { options.amsgrad; }) options.eps = args.adam_epsilon;
  const std::string where = fmt::format("optim_args of {}", args.optim);
  try {
    read_options(parse_key_values(args.optim_args), options, where);
  } catch (const ArgumentError& error) {
    const std::string_view what = error.what();
    throw ArgumentError(what.starts_with(where) ? std::string(what) : fmt::format("{}: {}", where, what));
  }
  return options;
}

template <typename Optimizer, typename Options, typename Parameters>
std::unique_ptr<Optimizer> create(const TrainingArguments& args, const Parameters& parameters,
                                  Options defaults) {
  const Options options = optimizer_options(args, defaults);
  double weight_decay = args.weight_decay;
  if constexpr (requires { options.weight_decay; }) weight_decay = options.weight_decay;
  return std::make_unique<Optimizer>(groups_of(parameters, weight_decay), options);
}

}  // namespace detail

/// The optimizer that `args.optim` names. `parameters` is a torch::nn::Module, a list of named parameters
/// (both are split into those with weight decay and those without) or a list of groups. Throws ArgumentError
/// for options that are unknown or ill, and when there is nothing to train.
template <typename Parameters>
std::unique_ptr<Optimizer> make_optimizer(const TrainingArguments& args, const Parameters& parameters) {
  switch (args.optim) {
    case OptimizerNames::adamw_torch:
      return detail::create<AdamW>(args, parameters, AdamWOptions{.fused = false});
    case OptimizerNames::adamw_torch_fused:
      return detail::create<AdamW>(args, parameters, AdamWOptions{});
    case OptimizerNames::adam:
      return detail::create<Adam>(args, parameters, AdamOptions{});
    case OptimizerNames::sgd:
      return detail::create<SGD>(args, parameters, SGDOptions{});
    case OptimizerNames::adagrad:
      return detail::create<Adagrad>(args, parameters, AdagradOptions{});
    case OptimizerNames::rmsprop:
      return detail::create<RMSprop>(args, parameters, RMSpropOptions{});
    case OptimizerNames::lbfgs:
      return detail::create<LBFGS>(args, parameters, LBFGSOptions{});
    case OptimizerNames::adafactor:
      return detail::create<Adafactor>(args, parameters, AdafactorOptions{});
    case OptimizerNames::lion:
      return detail::create<Lion>(args, parameters, LionOptions{});
  }
  throw ArgumentError(fmt::format("optim is {}: must be one of {}", static_cast<int>(args.optim),
                                  fmt::join(enum_names<OptimizerNames>, ", ")));
}

/// The scheduler that `args.lr_scheduler_type` names, for `total_steps` updates. The optimizer must outlive
/// it. Throws ArgumentError for options that are unknown or ill.
inline std::unique_ptr<LRScheduler> make_scheduler(const TrainingArguments& args, Optimizer& optimizer,
                                                   std::int64_t total_steps) {
  const SchedulerType type = args.lr_scheduler_type;
  const double initial_lr = optimizer.param_groups().front().initial_lr;  // a user's optimizer has its own
  const nlohmann::json& kwargs = args.lr_scheduler_kwargs;
  if (type == SchedulerType::reduce_lr_on_plateau) {
    ReduceLROnPlateau rule(detail::schedule_options<ReduceLROnPlateauOptions>(type, kwargs));
    return std::make_unique<MetricLR<ReduceLROnPlateau>>(optimizer, rule);
  }
  if (type == SchedulerType::greedy) {
    GreedyLR rule(detail::schedule_options<GreedyLROptions>(type, kwargs));
    return std::make_unique<MetricLR<GreedyLR>>(optimizer, rule);
  }
  return std::make_unique<LambdaLR>(
      optimizer, make_schedule(type, get_warmup_steps(args, total_steps), total_steps, initial_lr, kwargs));
}

}  // namespace etude
