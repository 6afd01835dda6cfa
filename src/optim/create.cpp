#include "etude/optim/create.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/optim/lr_scheduler.hpp"
#include "etude/optim/metric_schedules.hpp"
#include "etude/optim/optimizers.hpp"
#include "etude/optim/parameter_groups.hpp"
#include "etude/optim/parameter_rules.hpp"
#include "etude/optim/read_options.hpp"
#include "etude/optim/schedule_options.hpp"
#include "etude/optim/schedules.hpp"
#include "etude/reflect/key_values.hpp"
#include "etude/training_arguments.hpp"

namespace etude::inline v0 {
namespace detail {

namespace {

/// Makes the groups, with these options as their defaults.
using GroupsOf = std::function<std::vector<ParameterGroup>(double lr, double weight_decay)>;

/// The options from `args`: first from the fields that all optimizers share, then from `optim_args`.
template <typename Options>
Options optimizer_options(const TrainingArguments& args, Options options = {}) {
  options.lr = args.learning_rate;
  if constexpr (requires { options.weight_decay; }) options.weight_decay = args.weight_decay;
  if constexpr (requires { options.beta2; }) {
    options.beta1 = args.adam_beta1;
    options.beta2 = args.adam_beta2;
  }
  if constexpr (requires {
                  options.beta2;
                  options.eps;
                })
    options.eps = args.adam_epsilon;
  if constexpr (requires { options.adamw_beta2; }) {
    options.adamw_beta1 = args.adam_beta1;
    options.adamw_beta2 = args.adam_beta2;
    options.adamw_eps = args.adam_epsilon;
  }
  if constexpr (requires { options.rounding; }) options.seed = args.seed;
  const std::string where = fmt::format("optim_args of {}", args.optim);
  try {
    read_options(parse_key_values(args.optim_args), options, where);
  } catch (const ArgumentError& error) {
    const std::string_view what = error.what();
    throw ArgumentError(what.starts_with(where) ? std::string(what) : fmt::format("{}: {}", where, what));
  }
  return options;
}

}  // namespace

namespace {

template <typename Optimizer>
std::unique_ptr<Optimizer> create(const TrainingArguments& args, const GroupsOf& groups_of,
                                  const typename Optimizer::Options& defaults) {
  const auto options = optimizer_options(args, defaults);
  double weight_decay = args.weight_decay;
  if constexpr (requires { options.weight_decay; }) weight_decay = options.weight_decay;
  return std::make_unique<Optimizer>(groups_of(options.lr, weight_decay), options);
}

std::unique_ptr<Optimizer> create_any(const TrainingArguments& args, const GroupsOf& groups) {
#define ETUDE_DETAIL_BARE(...) __VA_ARGS__
#define ETUDE_DETAIL_CREATE(name, type, defaults, ...) \
  case OptimizerNames::name:                           \
    return create<type>(args, groups, type::Options{ETUDE_DETAIL_BARE defaults});
  switch (args.optim) { ETUDE_OPTIMIZERS(ETUDE_DETAIL_CREATE) }
#undef ETUDE_DETAIL_CREATE
#undef ETUDE_DETAIL_BARE
  throw ArgumentError(fmt::format("optim is {}: must be one of {}", static_cast<int>(args.optim),
                                  fmt::join(enum_names<OptimizerNames>, ", ")));
}

}  // namespace

}  // namespace detail

std::unique_ptr<Optimizer> make_optimizer(const TrainingArguments& args,
                                          const std::vector<ParameterGroup>& groups) {
  return detail::create_any(args, [&](double, double) { return groups; });
}

namespace detail {

ParameterRules follow_freezing_rules(const TrainingArguments& args, const NamedTensors& parameters,
                                     ParameterRules rules) {
  std::ranges::move(read_parameter_rules(args.parameter_groups, "parameter_groups"),
                    std::back_inserter(rules));
  check_parameter_rules(rules, parameters);
  freeze_by_rules(rules, parameters);
  return rules;
}

namespace {

/// Puts the groups' parameters into one group, in the order of `parameters`, since the sums of L-BFGS depend
/// on the order.
std::vector<ParameterGroup> in_one_group(const std::vector<ParameterGroup>& groups,
                                         const NamedTensors& parameters, double weight_decay) {
  std::unordered_set<std::string_view> grouped;
  for (const auto& group : groups)
    for (const auto& [name, tensor] : group.parameters) grouped.insert(name);
  ParameterGroup all{.parameters = {}, .lr = {}, .weight_decay = weight_decay};
  for (const auto& named : parameters)
    if (grouped.contains(named.first)) all.parameters.push_back(named);
  return {std::move(all)};
}

/// Makes an optimizer from the groups that `split(weight_decay)` returns, divided further by the arguments
/// and rules.
template <class Split>
std::unique_ptr<Optimizer> create_divided(const TrainingArguments& args, const NamedTensors& parameters,
                                          const ParameterRules& given, const ChosenNames& chosen,
                                          Split split) {
  const ParameterRules rules = follow_freezing_rules(args, parameters, given);
  return create_any(args, [&](double lr, double weight_decay) {
    auto groups = split(weight_decay);
    if (args.optim == OptimizerNames::lbfgs) groups = in_one_group(groups, parameters, weight_decay);
    if (chosen) {
      for (auto& group : groups)
        std::erase_if(group.parameters, [&](const auto& named) { return !chosen(named.first); });
      std::erase_if(groups, [](const auto& group) { return group.parameters.empty(); });
    }
    if (const auto decay = args.layerwise_learning_rate_decay; decay != 1)
      groups = with_layerwise_decay(std::move(groups), parameters, lr, decay);
    return rules.empty() ? groups : with_rules(std::move(groups), rules, lr);
  });
}

}  // namespace

}  // namespace detail

std::unique_ptr<Optimizer> make_optimizer(const TrainingArguments& args, const NamedTensors& parameters,
                                          const ParameterRules& rules, const ChosenNames& chosen) {
  return detail::create_divided(args, parameters, rules, chosen,
                                [&](double decay) { return parameter_groups(parameters, decay); });
}

std::unique_ptr<Optimizer> make_optimizer(const TrainingArguments& args, const torch::nn::Module& module,
                                          const ParameterRules& rules, const ChosenNames& chosen) {
  return detail::create_divided(args, named_parameters(module), rules, chosen,
                                [&](double decay) { return parameter_groups(module, decay); });
}

namespace detail {
namespace {

void require_momentum(Optimizer& optimizer, SchedulerType type) {
  const auto options = optimizer.options_state()["given"][0];
  for (const char* name : {"momentum", "beta1", "betas"})
    if (const auto found = options.find(name); found != options.end() && !found->is_null() && *found != 0)
      return;
  throw ArgumentError(fmt::format(
      "lr_scheduler_kwargs of {}: cycle_momentum is true: must be false with {}, which has no momentum", type,
      optimizer.type()));
}

}  // namespace
}  // namespace detail

std::unique_ptr<LRScheduler> make_scheduler(const TrainingArguments& args, Optimizer& optimizer,
                                            std::int64_t total_steps) {
  const SchedulerType type = args.lr_scheduler_type;
  const double initial_lr =
      optimizer.param_groups().front().initial_lr;  // a user's optimizer may differ from args
  const nlohmann::json& kwargs = args.lr_scheduler_kwargs;
  const auto mode = is_greater_better(args) ? MetricMode::max : MetricMode::min;
  if (type == SchedulerType::reduce_lr_on_plateau) {
    ReduceLROnPlateau rule(detail::schedule_options(type, kwargs, ReduceLROnPlateauOptions{.mode = mode}));
    return std::make_unique<MetricLR<ReduceLROnPlateau>>(optimizer, rule);
  }
  if (type == SchedulerType::greedy) {
    GreedyLR rule(detail::schedule_options(type, kwargs, GreedyLROptions{.mode = mode}));
    return std::make_unique<MetricLR<GreedyLR>>(optimizer, rule);
  }
  GroupSchedule schedule = make_schedule(type,
                                         {.warmup_steps = get_warmup_steps(args, total_steps),
                                          .total_steps = total_steps,
                                          .learning_rate = initial_lr},
                                         kwargs);
  if (schedule.momentum) detail::require_momentum(optimizer, type);
  return std::make_unique<LambdaLR>(optimizer, std::move(schedule));
}

}  // namespace etude::inline v0
