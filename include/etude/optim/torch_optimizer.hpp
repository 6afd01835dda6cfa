#pragma once

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>
#include "etude/libtorch/optim.hpp"
#include "etude/optim/group_options.hpp"
#include "etude/optim/lbfgs_state.hpp"
#include "etude/optim/optimizer.hpp"
#include "etude/optim/torch_kinds.hpp"
#include "etude/optim/torch_state.hpp"
#include "etude/reflect/json.hpp"

namespace etude {

/// An optimizer of torch's, or one of the user's own that derives from it. Its parameters lie flat as for any
/// other. It sees an undefined gradient where none came, as it would without us. The learning rate may be set
/// here
/// (`param_groups`, a scheduler of ours) or in its options (by a scheduler of torch's): the last change
/// counts. `weight_decay` in `param_groups` is not known, and 0.
///
/// Parameters of the model that it doesn't hold are neither updated nor part of the norm; `zero_grad` clears
/// their gradients so that these don't pile up.
class TorchOptimizer : public Optimizer {
 public:
  /// `parameters` are the model's, for their names. What the optimizer holds beyond them is named
  /// `param_groups.<group>.<index>`. Throws ArgumentError without an optimizer.
  TorchOptimizer(std::shared_ptr<torch::optim::Optimizer> optimizer, const NamedTensors& parameters)
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

  torch::Tensor step(const Closure& closure = nullptr) override {
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

  void zero_grad() override {
    flat_.zero_grad();
    for (const torch::Tensor& tensor : others_) {
      if (tensor.grad().defined()) tensor.mutable_grad().reset();
    }
  }

  std::vector<ParamGroup>& param_groups() override {
    for (std::size_t i = 0; i < groups_.size(); ++i) {
      const double lr = optimizer_->param_groups()[i].options().get_lr();
      if (lr != seen_lr_[i]) groups_[i].lr = seen_lr_[i] = lr;
    }
    return groups_;
  }

  torch::optim::Optimizer& torch_optimizer() { return *optimizer_; }

  bool needs_closure() const override {
    return dynamic_cast<const torch::optim::LBFGS*>(optimizer_.get()) != nullptr;
  }

  void set_learning_rates(std::size_t group, double lr, double initial_lr) override {
    Optimizer::set_learning_rates(group, lr, initial_lr);
    auto& options = optimizer_->param_groups()[group].options();
    options.set_lr(lr);
    groups_[group].lr = seen_lr_[group] = options.get_lr();
  }

  /// That of LibTorch's optimizer; of a type of the user's, which it is.
  std::string type() const override {
    std::string name;
    detail::with_known_options(optimizer_->param_groups().front().options(),
                               [&]<typename Options>(Options&) { name = detail::TorchKind<Options>::name; });
    return name.empty() ? detail::class_name(*optimizer_) : name;
  }

  /// As ours, for the optimizers that LibTorch has: ours of the same kind can load it. That of LBFGS is its
  /// own. Throws CheckpointError for a type of the user's, whose state nobody can know.
  NamedTensors state() override {
    return needs_closure() ? detail::lbfgs_state(*optimizer_) : Optimizer::state();
  }

  void load_state(const NamedTensors& state) override {
    if (needs_closure()) return detail::load_lbfgs_state(*optimizer_, state);
    const torch::NoGradGuard no_grad;
    flat_.mend();
    const std::vector<SlotState> loaded = match(state);
    std::vector<std::unique_ptr<torch::optim::OptimizerParamState>> states;
    for (std::size_t i = 0; i < loaded.size(); ++i) {
      const torch::Tensor& parameter = flat_.parameter(i);
      states.push_back(loaded[i].steps > 0 ? detail::torch_state(parameter, torch_options_of(i),
                                                                 loaded[i].moments, loaded[i].steps)
                                           : detail::initial_torch_state(parameter, torch_options_of(i)));
    }
    for (std::size_t i = 0; i < loaded.size(); ++i) {
      flat_.set_steps(i, loaded[i].steps);
      libtorch::set_optimizer_state(*optimizer_, flat_.parameter(i), std::move(states[i]));
    }
  }

 protected:
  void update() override {
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

  NamedTensors moments(std::size_t slot) override {
    return detail::torch_moments(*optimizer_, flat_.parameter(slot), torch_options_of(slot));
  }

  NamedSizes moment_sizes(std::size_t slot) override {
    NamedSizes result;
    for (std::string& name : detail::torch_moment_names(torch_options_of(slot)))
      result.emplace_back(std::move(name), flat_.layout()->slots[slot].sizes);
    return result;
  }

  void reset_moments(std::size_t slot) override {
    const torch::Tensor& parameter = flat_.parameter(slot);
    libtorch::set_optimizer_state(*optimizer_, parameter,
                                  detail::initial_torch_state(parameter, torch_options_of(slot)));
  }

  nlohmann::ordered_json group_options(std::size_t group) override { return options_of(group); }

  void check_group_options(std::size_t group, const nlohmann::ordered_json& merged,
                           const nlohmann::ordered_json& given) override {
    detail::OptionReader reader(merged, given, fmt::format("param_groups[{}].", group));
    double lr = 0, initial_lr = 0;
    reader("initial_lr", initial_lr, 0);
    const auto trial = optimizer_->param_groups()[group].options().clone();
    const bool known = detail::with_known_options(*trial, [&]<typename Options>(Options& options) {
      using Kind = detail::TorchKind<Options>;
      Kind::options(options, std::ref(reader));
      const std::string fault = Kind::fault(options);
      if (!fault.empty() && !detail::same_json(merged, given)) reader.add_fault(fault);
    });
    if (!known) reader("lr", lr, 0);
    reader.check();
  }

  void set_group_options(std::size_t group, const nlohmann::ordered_json& merged) override {
    detail::OptionReader reader(merged, merged, "");
    double lr = 0, initial_lr = 0;
    detail::with_known_options(optimizer_->param_groups()[group].options(),
                               [&]<typename Options>(Options& options) {
                                 detail::TorchKind<Options>::options(options, std::ref(reader));
                               });
    reader("lr", lr);
    reader("initial_lr", initial_lr);
    set_learning_rates(group, lr, initial_lr);
  }

 private:
  static torch::optim::Optimizer& required(const std::shared_ptr<torch::optim::Optimizer>& optimizer) {
    if (!optimizer) throw ArgumentError("the optimizer is null");
    return *optimizer;
  }

  static std::vector<ParameterGroup> groups_of(torch::optim::Optimizer& optimizer,
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

  void push_lr() {
    for (std::size_t i = 0; i < groups_.size(); ++i) {
      auto& options = optimizer_->param_groups()[i].options();
      if (groups_[i].lr != seen_lr_[i]) options.set_lr(groups_[i].lr);
      groups_[i].lr = seen_lr_[i] = options.get_lr();
    }
  }

  torch::optim::OptimizerOptions& torch_options_of(std::size_t slot) {
    return optimizer_->param_groups()[flat_.layout()->slots[slot].group].options();
  }

  nlohmann::ordered_json options_of(std::size_t group) {
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

  std::shared_ptr<torch::optim::Optimizer> optimizer_;
  std::vector<double> seen_lr_;  // in torch's options, when we last looked
  std::vector<torch::Tensor> others_;
};

}  // namespace etude
