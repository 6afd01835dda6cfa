#include "etude/loop/several_optimizers.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "etude/base/counting.hpp"
#include "etude/base/error.hpp"
#include "etude/base/faults.hpp"
#include "etude/base/message.hpp"
#include "etude/base/utf8.hpp"
#include "etude/optim/create.hpp"
#include "etude/optim/parameter_rules.hpp"
#include "etude/optim/torch_optimizer.hpp"

namespace etude::inline v0::detail {

void add_faults_of_optimizers(const TrainerOptions& options, Faults& found) {
  const auto& all = options.optimizers;
  if (all.empty()) return;
  const auto both = [&](bool is_set, std::string_view option) {
    if (is_set) found.add("optimizers and {} are both set: must be one of them", option);
  };
  both(static_cast<bool>(options.optimizer), "optimizer");
  both(static_cast<bool>(options.lr_scheduler), "lr_scheduler");
  const auto with_loss = std::ranges::count_if(
      all, [](const auto& named) { return static_cast<bool>(named.second.compute_loss); });
  if (with_loss > 0) {
    both(static_cast<bool>(options.loss), "loss, where each optimizer has its compute_loss,");
    both(static_cast<bool>(options.compute_loss), "compute_loss, where each optimizer has its own,");
    if (with_loss < std::ssize(all))
      found.add("compute_loss is set for {} of {} optimizers: must be for all of them, or for none",
                with_loss, all.size());
  }
  std::set<std::string_view> names;
  bool has_each_step = false;
  for (const auto& [name, own] : all) {
    if (name.empty() || !is_utf8(name) || name.find_first_of("/.\\") != std::string::npos)
      found.add(
          "optimizers has the name {}: must have at least one character, and none of / . \\, since files are "
          "named by it",
          quoted_utf8(name));
    else if (!names.insert(name).second)
      found.add("optimizers has the name '{}' twice: must be a name for each optimizer", name);
    if (own.every < 1) found.add("every is {} for the optimizer '{}': must be at least 1", own.every, name);
    has_each_step |= own.every == 1;
    if (own.lr_scheduler.needs_torch_optimizer() && !own.optimizer)
      found.add("lr_scheduler of the optimizer '{}' is one of torch's: its optimizer must be set too", name);
    if (own.optimizer && !own.parameters.empty())
      found.add(
          "optimizer '{}' has both optimizer and parameters: must be one of them, since torch's "
          "holds its own",
          name);
    for (const auto& fault : faults(arguments_of(options.args, own)))
      if (!std::ranges::count(faults(options.args), fault)) found.add("optimizer '{}': {}", name, fault);
  }
  if (!has_each_step) found.add("every is more than 1 for all optimizers: must be 1 for one of them");
}

void make_optimizers(const RunSettings& run, Trained& trained) {
  if (run.overrides.create_optimizer)
    throw ArgumentError(
        "optimizers is set: must not be in a trainer that overrides create_optimizer, which would not be "
        "called");
  const auto parameters = trained.model.named_parameters();
  // The rules for freezing also apply to LibTorch's own optimizers, and to parameters that no optimizer
  // holds.
  follow_freezing_rules(run.args, parameters, run.options.parameter_groups);
  std::unordered_map<const void*, std::string_view> owner;
  for (const auto& [name, own] : run.options.optimizers) {
    const auto patterns = own.parameters.empty() ? std::vector{name} : own.parameters;
    for (const auto& pattern : patterns)
      if (!own.optimizer && std::ranges::none_of(parameters, [&](const auto& each) {
            return names_parameter(pattern, each.first);
          })) {
        std::set<std::string> children;
        for (const auto& [parameter, tensor] : parameters)
          children.insert(parameter.substr(0, parameter.find('.')));
        throw ArgumentError(fmt::format(
            "the optimizer '{}' has the pattern '{}': must name a parameter or module of the model, "
            "which has {}",
            name, pattern, fmt::join(children, ", ")));
      }
    const auto chosen = [&](const std::string& parameter) {
      return std::ranges::any_of(patterns,
                                 [&](const auto& pattern) { return names_parameter(pattern, parameter); });
    };
    const auto args = arguments_of(run.args, own);
    std::unique_ptr<Optimizer> made;
    if (own.optimizer) {
      made = std::make_unique<TorchOptimizer>(own.optimizer, parameters);
    } else {
      const auto& rules = run.options.parameter_groups;
      const auto module_of_model = trained.model.module();
      made = module_of_model ? make_optimizer(args, *module_of_model, rules, chosen)
                             : make_optimizer(args, parameters, rules, chosen);
    }
    for (const auto& group : made->param_groups())
      for (const auto& [parameter, tensor] : group.parameters)
        if (const auto [other, is_new] = owner.emplace(tensor.unsafeGetTensorImpl(), name); !is_new)
          throw ArgumentError(
              fmt::format("{} belongs to the optimizers '{}' and '{}': must be to one of them", parameter,
                          other->second, name));
    trained.optimizers.add({.name = name,
                            .optimizer = std::move(made),
                            .every = own.every,
                            .max_grad_norm = own.max_grad_norm,
                            .max_grad_value = own.max_grad_value});
  }
  std::vector<std::string> without;
  for (const auto& [name, tensor] : parameters)
    if (tensor.requires_grad() && !owner.contains(tensor.unsafeGetTensorImpl())) without.push_back(name);
  if (without.empty()) return;
  const auto shown = std::min<std::size_t>(without.size(), 4);
  message(run.args, LogLevel::warning,
          "no optimizer updates {}{}: name them in the parameters of one, or freeze them",
          fmt::join(without.begin(), without.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
          shown < without.size() ? fmt::format(" and {} more parameters", without.size() - shown) : "");
}

void make_schedulers(const RunSettings& run, const TrainerRunConfig& run_config, OptimizerList& optimizers,
                     std::int64_t max_steps) {
  std::size_t i = 0;
  for (const auto& [name, own] : run.options.optimizers) {
    OptimizerList::Turn turn(optimizers, i);
    auto& each = optimizers[i++];
    each.lr_scheduler = own.lr_scheduler ? own.lr_scheduler(*each.optimizer, run_config)
                                         : make_scheduler(arguments_of(run.args, own), *each.optimizer,
                                                          groups_of(max_steps, each.every));
  }
}

LossOutput loss_of_optimizers(TrainerCore& core, const Batch& batch, std::optional<double> num_items) {
  const auto loss_of = [&](std::size_t i) {
    const auto& [name, own] = core.options.optimizers[i];
    LossOutput computed(own.compute_loss.function()(core.model, batch, num_items));
    if (computed.loss.defined()) core.log(name + "_loss", computed.loss);
    return computed;
  };
  if (const auto turn = core.optimizers.turn()) return loss_of(*turn);
  auto all = loss_of(0);
  for (std::size_t i = 1; i < core.options.optimizers.size(); ++i) {
    const auto other = loss_of(i);
    all.loss = all.loss + other.loss;
    if (all.outputs.empty()) all.outputs = other.outputs;
  }
  return all;
}

}  // namespace etude::inline v0::detail
