#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "etude/optim/lr_scheduler.hpp"
#include "etude/optim/optimizer.hpp"
#include "etude/optim/parameter_groups.hpp"
#include "etude/optim/parameter_rules.hpp"
#include "etude/training_arguments.hpp"

namespace etude::inline v0 {

using ChosenNames = std::function<bool(const std::string& name)>;

/// Makes the optimizer that `args.optim` names. Throws ArgumentError for unknown or invalid options, and if
/// there is nothing to train.
std::unique_ptr<Optimizer> make_optimizer(const TrainingArguments& args,
                                          const std::vector<ParameterGroup>& groups);

/// The same for named parameters, or for the parameters of a module. They are split into groups with and
/// without weight decay, then by `args.layerwise_learning_rate_decay`, by `rules`, and by the rules in
/// `args.parameter_groups`, which take precedence. Each rule must match some parameter, and may freeze
/// parameters. With `chosen`, the optimizer gets only the parameters whose names `chosen` accepts.
std::unique_ptr<Optimizer> make_optimizer(const TrainingArguments& args, const NamedTensors& parameters,
                                          const ParameterRules& rules = {}, const ChosenNames& chosen = {});
std::unique_ptr<Optimizer> make_optimizer(const TrainingArguments& args, const torch::nn::Module& module,
                                          const ParameterRules& rules = {}, const ChosenNames& chosen = {});

namespace detail {
/// Freezes the parameters that `rules` and `args.parameter_groups` say to freeze. Returns the rules of both,
/// in this order.
ParameterRules follow_freezing_rules(const TrainingArguments& args, const NamedTensors& parameters,
                                     ParameterRules rules);
}  // namespace detail

/// Makes the scheduler that `args.lr_scheduler_type` names, for `total_steps` updates. A scheduler that
/// follows a metric takes its mode from `is_greater_better(args)`, unless `lr_scheduler_kwargs` has a `mode`.
/// The optimizer must outlive it. Throws ArgumentError for unknown or invalid options, and if the schedule
/// changes the momentum but the optimizer has none.
std::unique_ptr<LRScheduler> make_scheduler(const TrainingArguments& args, Optimizer& optimizer,
                                            std::int64_t total_steps);

}  // namespace etude::inline v0
