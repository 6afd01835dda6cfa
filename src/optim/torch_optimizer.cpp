#include "etude/optim/torch_optimizer.hpp"

#include <fmt/format.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/libtorch/optim.hpp"
#include "etude/optim/group_options.hpp"
#include "etude/optim/lbfgs_state.hpp"
#include "etude/optim/torch_kinds.hpp"
#include "etude/optim/torch_state.hpp"
#include "etude/reflect/json.hpp"

namespace etude::inline v0 {

TorchOptimizer::TorchOptimizer(std::shared_ptr<torch::optim::Optimizer> optimizer,
                               const NamedTensors& parameters)
    : Optimizer(groups_of(required(optimizer), parameters), 0, 0), optimizer_(std::move(optimizer)) {
  for (const ParamGroup& group : groups_) seen_lr_.push_back(group.lr);
  for (std::size_t i = 0; i < groups_.size(); ++i) given_[i] = options_of(i);
  std::unordered_set<const void*> held;
  for (const ParamGroup& group : groups_) {
    for (const auto& [name, tensor] : group.parameters) held.insert(tensor.unsafeGetTensorImpl());
  }
  for (const auto& [name, tensor] : parameters) {
    if (!held.contains(tensor.unsafeGetTensorImpl())) others_.push_back(tensor);
  }
}

torch::Tensor TorchOptimizer::step(const Closure& closure) {
  if (needs_closure() && !closure)
    throw ArgumentError("this optimizer needs a closure that computes the loss");
  push_lr();
  if (needs_closure()) {
    flat_.mend();
    torch::Tensor loss = optimizer_->step(closure);
    flat_.begin_step();
    return loss;
  }
  return Optimizer::step(closure);
}

void TorchOptimizer::zero_grad() {
  flat_.zero_grad();
  for (const torch::Tensor& tensor : others_) {
    if (tensor.grad().defined()) tensor.mutable_grad().reset();
  }
}

std::vector<ParamGroup>& TorchOptimizer::param_groups() {
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    const double lr = optimizer_->param_groups()[i].options().get_lr();
    if (lr != seen_lr_[i]) groups_[i].lr = seen_lr_[i] = lr;
  }
  return groups_;
}

OptimizerTraits TorchOptimizer::traits() const {
  return {.needs_closure = dynamic_cast<const torch::optim::LBFGS*>(optimizer_.get()) != nullptr};
}

void TorchOptimizer::set_learning_rates(std::size_t group, double lr, double initial_lr) {
  Optimizer::set_learning_rates(group, lr, initial_lr);
  auto& options = optimizer_->param_groups()[group].options();
  options.set_lr(lr);
  groups_[group].lr = seen_lr_[group] = options.get_lr();
}

std::string TorchOptimizer::type() const {
  std::string name;
  detail::with_known_options(optimizer_->param_groups().front().options(),
                             [&]<typename Options>(Options&) { name = detail::TorchKind<Options>::name; });
  return name.empty() ? detail::class_name(*optimizer_) : name;
}

NamedTensors TorchOptimizer::state() {
  return needs_closure() ? detail::lbfgs_state(*optimizer_) : Optimizer::state();
}

std::int64_t TorchOptimizer::state_bytes() {
  if (!needs_closure()) return Optimizer::state_bytes();
  std::int64_t vectors = 2, bytes = 0;
  for (auto& group : optimizer_->param_groups()) {
    if (const auto* options = dynamic_cast<const torch::optim::LBFGSOptions*>(&group.options()))
      vectors += 2 * options->history_size();
    for (const auto& parameter : group.params()) bytes += static_cast<std::int64_t>(parameter.nbytes());
  }
  return vectors * bytes;
}

void TorchOptimizer::load_state(const NamedTensors& state) {
  needs_closure() ? detail::load_lbfgs_state(*optimizer_, state) : Optimizer::load_state(state);
}

void TorchOptimizer::update() {
  flat_.begin_step();
  std::vector<std::pair<torch::Tensor, torch::Tensor>> hidden;
  for (std::size_t i = 0; i < flat_.layout()->slots.size(); ++i) {
    if (flat_.has_gradient(i)) continue;
    const torch::Tensor& parameter = flat_.parameter(i);
    hidden.emplace_back(parameter, parameter.grad());
    parameter.mutable_grad().reset();
  }
  const auto show = [&] {
    for (auto& [parameter, gradient] : hidden) parameter.mutable_grad() = gradient;
  };
  try {
    optimizer_->step();
  } catch (...) {
    show();
    throw;
  }
  show();
}

NamedTensors TorchOptimizer::moments(std::size_t slot) {
  return detail::torch_moments(*optimizer_, flat_.parameter(slot), torch_options_of(slot));
}

Optimizer::NamedSizes TorchOptimizer::moment_sizes(std::size_t slot) {
  NamedSizes result;
  for (std::string& name : detail::torch_moment_names(torch_options_of(slot)))
    result.push_back({std::move(name), flat_.layout()->slots[slot].sizes});
  return result;
}

void TorchOptimizer::set_moments(std::size_t slot, const std::vector<torch::Tensor>& values) {
  const torch::Tensor& parameter = flat_.parameter(slot);
  auto& options = torch_options_of(slot);
  const std::int64_t steps = flat_.steps(slot);
  libtorch::set_optimizer_state(*optimizer_, parameter,
                                steps > 0 ? detail::torch_state(parameter, options, values, steps)
                                          : detail::initial_torch_state(parameter, options));
}

nlohmann::ordered_json TorchOptimizer::group_options(std::size_t group) { return options_of(group); }

std::function<void()> TorchOptimizer::setter_of_options(std::size_t group,
                                                        const nlohmann::ordered_json& merged,
                                                        const nlohmann::ordered_json& given) {
  detail::OptionReader reader(merged, given, fmt::format("param_groups[{}].", group));
  double lr = 0, initial_lr = 0;
  reader("initial_lr", initial_lr, allowed::at_least(0));
  const std::shared_ptr<torch::optim::OptimizerOptions> trial =
      optimizer_->param_groups()[group].options().clone();
  const bool known = detail::with_known_options(*trial, [&]<typename Options>(Options& options) {
    using Kind = detail::TorchKind<Options>;
    Kind::options(options, std::ref(reader));
    const std::string fault = Kind::fault(options);
    if (!fault.empty() && !detail::same_json(merged, given)) reader.add_fault(fault);
  });
  if (known)
    lr = trial->get_lr();
  else
    reader("lr", lr, allowed::at_least(0));
  reader.check();
  return [this, group, trial, lr, initial_lr] {
    detail::with_known_options(
        optimizer_->param_groups()[group].options(),
        [&]<typename Options>(Options& options) { options = static_cast<const Options&>(*trial); });
    set_learning_rates(group, lr, initial_lr);
  };
}

torch::optim::Optimizer& TorchOptimizer::required(const std::shared_ptr<torch::optim::Optimizer>& optimizer) {
  if (!optimizer) throw ArgumentError("the optimizer is null");
  return *optimizer;
}

std::vector<ParameterGroup> TorchOptimizer::groups_of(torch::optim::Optimizer& optimizer,
                                                      const NamedTensors& parameters) {
  std::unordered_map<const void*, std::string> names;
  for (const auto& [name, tensor] : parameters) names.emplace(tensor.unsafeGetTensorImpl(), name);
  std::vector<ParameterGroup> groups;
  for (auto& torch_group : optimizer.param_groups()) {
    ParameterGroup group{.parameters = {}, .lr = torch_group.options().get_lr(), .weight_decay = 0.0};
    for (const torch::Tensor& tensor : torch_group.params()) {
      const auto name = names.find(tensor.unsafeGetTensorImpl());
      group.parameters.emplace_back(
          name != names.end() ? name->second
                              : fmt::format("param_groups.{}.{}", groups.size(), group.parameters.size()),
          tensor);
    }
    groups.push_back(std::move(group));
  }
  return groups;
}

void TorchOptimizer::push_lr() {
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    auto& options = optimizer_->param_groups()[i].options();
    if (groups_[i].lr != seen_lr_[i]) options.set_lr(groups_[i].lr);
    groups_[i].lr = seen_lr_[i] = options.get_lr();
    if (!groups_[i].momentum) continue;
    const auto set = [&](std::string_view name, auto& value, auto...) {
      if constexpr (std::is_same_v<decltype(value), double&>)
        if (name == "momentum" || name == "beta1") value = *groups_[i].momentum;
    };
    detail::with_known_options(
        options, [&]<typename Options>(Options& known) { detail::TorchKind<Options>::options(known, set); });
  }
}

torch::optim::OptimizerOptions& TorchOptimizer::torch_options_of(std::size_t slot) {
  return optimizer_->param_groups()[flat_.layout()->slots[slot].group].options();
}

nlohmann::ordered_json TorchOptimizer::options_of(std::size_t group) {
  auto result = nlohmann::ordered_json::object();
  const auto write = [&](const char* name, const auto& value, auto...) {
    result[name] = to_json_value(value);
  };
  detail::with_known_options(
      optimizer_->param_groups()[group].options(),
      [&]<typename Options>(Options& options) { detail::TorchKind<Options>::options(options, write); });
  result["lr"] = groups_[group].lr;
  result["initial_lr"] = groups_[group].initial_lr;
  return result;
}

}  // namespace etude::inline v0
