#pragma once

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>
#include "etude/libtorch/optim.hpp"
#include "etude/optim/optimizer.hpp"
#include "etude/optim/torch_state.hpp"

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

  /// As ours, for the optimizers that LibTorch has: ours of the same kind can load it. That of LBFGS is its
  /// own. Throws CheckpointError for a type of the user's, whose state nobody can know.
  NamedTensors state() override {
    return needs_closure() ? detail::lbfgs_state(*optimizer_) : Optimizer::state();
  }

  void load_state(const NamedTensors& state) override {
    if (needs_closure()) return detail::load_lbfgs_state(*optimizer_, state);
    Optimizer::load_state(state);
    for (std::size_t i = 0; i < flat_.layout()->slots.size(); ++i) {
      if (flat_.steps(i) > 0) state_of(i).set_step(flat_.steps(i));
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

  NamedTensors moments(std::size_t slot) override { return state_of(slot).moments; }

  void reset_moments() override {
    optimizer_->state().clear();
    // Adagrad has a state from the start and fails without.
    for (std::size_t i = 0; i < flat_.layout()->slots.size(); ++i) state_of(i);
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

  detail::TorchState state_of(std::size_t slot) {
    const std::size_t group = flat_.layout()->slots[slot].group;
    return detail::torch_state(*optimizer_, flat_.parameter(slot),
                               optimizer_->param_groups()[group].options());
  }

  std::shared_ptr<torch::optim::Optimizer> optimizer_;
  std::vector<double> seen_lr_;  // in torch's options, when we last looked
  std::vector<torch::Tensor> others_;
};

}  // namespace etude
