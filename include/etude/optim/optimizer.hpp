#pragma once

#include <fmt/format.h>
#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>
#include "etude/error.hpp"
#include "etude/optim/flat_parameters.hpp"
#include "etude/optim/parameter_groups.hpp"

namespace etude {

/// The parameters of a group and how they are trained. `lr` is what the next step uses; a scheduler computes
/// it from `initial_lr`.
struct ParamGroup {
  NamedTensors parameters;
  double lr = 0;
  double initial_lr = 0;
  double weight_decay = 0;
};

/// What updates the parameters of a model, which it lays flat (see FlatParameters) for as long as it lives.
/// A parameter that got no gradient since `zero_grad` isn't touched by `step`: no decay, no change of its
/// state.
class Optimizer {
 public:
  using Closure = std::function<torch::Tensor()>;

  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;
  virtual ~Optimizer() = default;

  /// One update. A closure (clears the gradients, computes the loss, calls backward, returns the loss) is
  /// called first where it is given, and its loss returned.
  /// Throws ArgumentError when `needs_closure` and none is given.
  virtual torch::Tensor step(const Closure& closure = nullptr) {
    torch::Tensor loss;
    if (closure) {
      const torch::AutoGradMode with_grad(true);
      loss = closure();
    }
    const torch::NoGradGuard no_grad;
    update();
    return loss;
  }

  /// Whether `step` calls the closure itself, perhaps several times, and can't do without.
  virtual bool needs_closure() const { return false; }

  virtual void zero_grad() { flat_.zero_grad(); }

  /// The L2 norm of all gradients, 0-dim, on the device.
  torch::Tensor grad_norm() { return flat_.grad_norm(); }
  /// Scales the gradients to a norm of at most `max_norm` and returns the norm before, 0-dim, on the device.
  torch::Tensor clip_grad_norm(double max_norm) { return flat_.clip_grad_norm(max_norm); }
  /// Limits every gradient element to [-limit, limit].
  void clip_grad_value(double limit) { flat_.clip_grad_value(limit); }

  virtual std::vector<ParamGroup>& param_groups() { return groups_; }

  FlatParameters& flat_parameters() { return flat_; }

  /// The state of each parameter that was updated: `<parameter>.step` (a 0-dim int64) and moments such as
  /// `<parameter>.exp_avg`, in the parameter's shape. The tensors share the optimizer's memory; clone what
  /// has to outlive the next step.
  virtual NamedTensors state();

  /// Replaces the state by one that `state` gave, perhaps of another layout or on another device. Parameters
  /// that are not in it start anew; what it says of parameters that are frozen now is dropped. Throws
  /// CheckpointError when a name, a shape or a value doesn't fit; nothing is changed then.
  virtual void load_state(const NamedTensors& state);

 protected:
  /// Throws ArgumentError when there is nothing to train.
  Optimizer(const std::vector<ParameterGroup>& groups, double lr, double weight_decay)
      : groups_(complete(groups, lr, weight_decay)), flat_(tensors_of(groups_)) {
    if (flat_.layout()->slots.empty()) {
      throw ArgumentError(
          "the optimizer has no parameter to train: the model has none, or all of them are frozen");
    }
  }

  /// Updates every parameter that has a gradient.
  virtual void update() = 0;

  /// What is kept of one parameter beside its steps: views that `load_state` writes to. After `flat_.mend()`.
  virtual NamedTensors moments(std::size_t slot) = 0;

  /// As it was before the first step.
  virtual void reset_moments() = 0;

  std::vector<ParamGroup> groups_;
  FlatParameters flat_;

 private:
  static std::vector<ParamGroup> complete(const std::vector<ParameterGroup>& groups, double lr,
                                          double weight_decay) {
    std::vector<ParamGroup> result;
    for (const ParameterGroup& group : groups) {
      const double group_lr = group.lr.value_or(lr);
      result.push_back({group.parameters, group_lr, group_lr, group.weight_decay.value_or(weight_decay)});
    }
    return result;
  }

  bool is_parameter(const std::string& name) const {
    for (const ParamGroup& group : groups_) {
      for (const auto& parameter : group.parameters) {
        if (parameter.first == name) return true;
      }
    }
    return false;
  }

  static std::vector<NamedTensors> tensors_of(const std::vector<ParamGroup>& groups) {
    std::vector<NamedTensors> result;
    for (const ParamGroup& group : groups) result.push_back(group.parameters);
    return result;
  }
};

inline NamedTensors Optimizer::state() {
  flat_.mend();
  NamedTensors result;
  for (std::size_t i = 0; i < flat_.layout()->slots.size(); ++i) {
    if (flat_.steps(i) == 0) continue;
    const std::string& name = flat_.layout()->slots[i].name;
    result.emplace_back(name + ".step", torch::scalar_tensor(flat_.steps(i), at::kLong));
    for (auto& [key, tensor] : moments(i)) result.emplace_back(name + "." + key, tensor);
  }
  return result;
}

namespace detail {

/// State by parameter name, then by key: `fc.weight.exp_avg` is `exp_avg` of `fc.weight`.
inline std::map<std::string, std::map<std::string, torch::Tensor>> by_parameter(const NamedTensors& state) {
  std::map<std::string, std::map<std::string, torch::Tensor>> result;
  for (const auto& [name, tensor] : state) {
    const auto dot = name.rfind('.');
    if (dot == std::string::npos) {
      throw CheckpointError(fmt::format("'{}' is no name of optimizer state (<parameter>.<what>)", name));
    }
    result[name.substr(0, dot)][name.substr(dot + 1)] = tensor;
  }
  return result;
}

inline std::int64_t steps_in(const std::string& name, const std::map<std::string, torch::Tensor>& state) {
  const auto found = state.find("step");
  if (found == state.end())
    throw CheckpointError(fmt::format("the optimizer state of '{}' has no 'step'", name));
  const torch::Tensor& step = found->second;
  if (step.numel() != 1 || !at::isIntegralType(step.scalar_type(), false) || step.item<std::int64_t>() < 1) {
    throw CheckpointError(fmt::format("the optimizer state '{}.step' is no positive whole number", name));
  }
  return step.item<std::int64_t>();
}

inline void check_moment(const std::string& name, const torch::Tensor& expected, const torch::Tensor& given) {
  if (expected.sizes() != given.sizes() || !at::isFloatingType(given.scalar_type())) {
    throw CheckpointError(
        fmt::format("the optimizer state '{}' is {} {}, expected a floating-point tensor {}", name,
                    c10::toString(given.scalar_type()), given.sizes().vec(), expected.sizes().vec()));
  }
}

}  // namespace detail

inline void Optimizer::load_state(const NamedTensors& state) {
  const torch::NoGradGuard no_grad;
  flat_.mend();
  const auto given = detail::by_parameter(state);
  const auto& slots = flat_.layout()->slots;
  std::vector<std::int64_t> steps(slots.size(), 0);
  std::size_t found = 0;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const auto entry = given.find(slots[i].name);
    if (entry == given.end()) continue;
    ++found;
    const auto& [name, tensors] = *entry;
    steps[i] = detail::steps_in(name, tensors);
    const NamedTensors expected = moments(i);
    for (const auto& [key, view] : expected) {
      const auto tensor = tensors.find(key);
      if (tensor == tensors.end()) {
        throw CheckpointError(
            fmt::format("the optimizer state of '{}' has no '{}'; was it another optimizer's?", name, key));
      }
      detail::check_moment(name + "." + key, view, tensor->second);
    }
    if (tensors.size() != expected.size() + 1) {
      throw CheckpointError(fmt::format(
          "the optimizer state of '{}' holds more than this optimizer knows; was it another optimizer's?",
          name));
    }
  }
  if (found != given.size()) {
    for (const auto& [name, tensors] : given) {
      if (!is_parameter(name)) {
        throw CheckpointError(
            fmt::format("there is optimizer state of '{}', which is no parameter of this optimizer", name));
      }
    }
  }
  reset_moments();
  for (std::size_t i = 0; i < slots.size(); ++i) {
    flat_.set_steps(i, steps[i]);
    if (steps[i] == 0) continue;
    for (auto& [key, view] : moments(i)) view.copy_(given.at(slots[i].name).at(key));
  }
}

}  // namespace etude
