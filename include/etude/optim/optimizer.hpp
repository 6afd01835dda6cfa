#pragma once

#include <fmt/format.h>
#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>
#include "etude/error.hpp"
#include "etude/optim/flat_parameters.hpp"
#include "etude/optim/group_options.hpp"
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
  /// The same, for the next step only: where that can be done, the gradients stay as they are and the step
  /// scales them on its way, which saves a pass.
  virtual torch::Tensor clip_grad_norm_in_step(double max_norm) { return clip_grad_norm(max_norm); }
  /// Limits every gradient element to [-limit, limit].
  void clip_grad_value(double limit) { flat_.clip_grad_value(limit); }

  virtual std::vector<ParamGroup>& param_groups() { return groups_; }

  FlatParameters& flat_parameters() { return flat_; }

  /// Sets the learning rates of a group at once, wherever they are kept.
  virtual void set_learning_rates(std::size_t group, double lr, double initial_lr) {
    groups_[group].lr = lr;
    groups_[group].initial_lr = initial_lr;
  }

  /// The name of its kind, without namespaces: "AdamW".
  virtual std::string type() const { return detail::class_name(*this); }

  /// What its steps depend on beside `state` and the parameters: {"type": ..., "given": [...], "changed":
  /// [...]}, one object a group in each list. "given" has the options as they were when the optimizer was
  /// made (lr, initial_lr, weight_decay, betas, ...), "changed" those that are others now.
  nlohmann::ordered_json options_state();

  /// Takes over what a run had made of its options, from its `options_state`: an option that this optimizer
  /// was given as the run's was becomes what the run had made of it. One that was given otherwise stays (so
  /// does one that can't be changed), and `differences` gets a line: `param_groups[0].lr: 0.001 -> 0.002`. Of
  /// an optimizer of another type, learning rates and weight decay count only. Call it before `load_state`
  /// and before the scheduler's. Returns whether some group was given another learning rate than then. Throws
  /// CheckpointError for another number of groups and for values out of range; nothing is changed then.
  bool load_options(const nlohmann::ordered_json& saved, std::vector<std::string>& differences);

  /// The state of each parameter that was updated: `<parameter>.step` (a 0-dim int64) and moments such as
  /// `<parameter>.exp_avg`, in the parameter's shape. The tensors share the optimizer's memory; clone what
  /// has to outlive the next step.
  inline virtual NamedTensors state();

  /// Replaces the state by one that `state` gave, perhaps of another layout or on another device. Parameters
  /// that are not in it start anew; what it says of parameters that are frozen now is dropped. Throws
  /// CheckpointError when a name, a shape or a value doesn't fit; nothing is changed then.
  inline virtual void load_state(const NamedTensors& state);

 protected:
  /// What a state says of one parameter. Without steps, it starts anew.
  struct SlotState {
    std::int64_t steps = 0;
    std::vector<torch::Tensor> moments;  ///< as `moment_sizes` names them
  };
  using NamedSizes = std::vector<std::pair<std::string, std::vector<std::int64_t>>>;

  /// Throws ArgumentError when there is nothing to train.
  Optimizer(const std::vector<ParameterGroup>& groups, double lr, double weight_decay)
      : groups_(complete(groups, lr, weight_decay)), flat_(tensors_of(groups_)) {
    if (flat_.layout()->slots.empty()) {
      throw ArgumentError(
          "the optimizer has no parameter to train: the model has none, or all of them are frozen");
    }
    for (const ParamGroup& group : groups_) given_.push_back(numbers_of(group));
  }

  /// Updates every parameter that has a gradient.
  virtual void update() = 0;

  /// What is kept of one parameter beside its steps: views that `load_state` writes to. After `flat_.mend()`.
  virtual NamedTensors moments(std::size_t slot) = 0;

  /// The names and sizes of `moments`.
  virtual NamedSizes moment_sizes(std::size_t slot) {
    NamedSizes result;
    for (const auto& [key, tensor] : moments(slot)) result.emplace_back(key, tensor.sizes().vec());
    return result;
  }

  /// Makes what is kept of one parameter as it was before its first step.
  virtual void reset_moments(std::size_t slot) = 0;

  /// Its options beside those of ParamGroup, which never change: a JSON object.
  virtual nlohmann::ordered_json own_options() const { return nlohmann::ordered_json::object(); }

  /// All options of a group as they are now.
  virtual nlohmann::ordered_json group_options(std::size_t group) {
    return detail::overlaid(own_options(), numbers_of(groups_[group]));
  }

  /// Throws CheckpointError unless each option of `merged` that isn't as it is in `given` could be set.
  virtual void check_group_options(std::size_t group, const nlohmann::ordered_json& merged,
                                   const nlohmann::ordered_json& given) {
    detail::GroupNumbers(merged, given, fmt::format("param_groups[{}].", group)).check();
  }

  /// Sets options that were checked.
  virtual void set_group_options(std::size_t group, const nlohmann::ordered_json& merged) {
    const detail::GroupNumbers numbers(merged, merged, "");
    set_learning_rates(group, numbers.lr, numbers.initial_lr);
    groups_[group].weight_decay = numbers.weight_decay;
  }

  /// The state of each slot, checked. Throws CheckpointError as `load_state` does.
  std::vector<SlotState> match(const NamedTensors& state);

  std::vector<ParamGroup> groups_;
  FlatParameters flat_;
  std::vector<nlohmann::ordered_json> given_;  ///< the options that each group was made with

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

  static nlohmann::ordered_json numbers_of(const ParamGroup& group) {
    return {{"lr", group.lr}, {"initial_lr", group.initial_lr}, {"weight_decay", group.weight_decay}};
  }

  static std::vector<NamedTensors> tensors_of(const std::vector<ParamGroup>& groups) {
    std::vector<NamedTensors> result;
    for (const ParamGroup& group : groups) result.push_back(group.parameters);
    return result;
  }

  nlohmann::ordered_json given_options(std::size_t group) {
    return detail::overlaid(group_options(group), given_[group]);
  }

  void check_leftovers(const NamedTensors& state, const std::vector<SlotState>& loaded,
                       const std::unordered_map<std::string_view, const torch::Tensor*>& leftovers) const;
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

inline nlohmann::ordered_json Optimizer::options_state() {
  auto given = nlohmann::ordered_json::array(), changed_now = given;
  param_groups();
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    given.push_back(given_options(i));
    changed_now.push_back(changed(given.back(), group_options(i)));
  }
  return {{"type", type()}, {"given", given}, {"changed", changed_now}};
}

inline bool Optimizer::load_options(const nlohmann::ordered_json& saved,
                                    std::vector<std::string>& differences) {
  const detail::SavedOptions then(saved, groups_.size());
  const bool same_type = then.type == type();
  std::vector<std::string> told;
  if (!same_type) told.push_back(fmt::format("optimizer: {} -> {}", then.type, type()));
  std::vector<nlohmann::ordered_json> merged;
  bool rates_are_new = false;
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    const nlohmann::ordered_json given = given_options(i);
    merged.push_back(detail::merge_options(then.given[i], then.changed[i], given, same_type, told,
                                           fmt::format("param_groups[{}]", i)));
    check_group_options(i, merged[i], given);
    rates_are_new |= then.given[i].contains("lr") && !detail::same_json(then.given[i]["lr"], given["lr"]);
  }
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    set_group_options(i, merged[i]);
    nlohmann::ordered_json now = group_options(i);
    const auto overruled = changed(now, merged[i]);
    for (const auto& [name, value] : overruled.items()) {
      told.push_back(fmt::format("param_groups[{}].{}: {} -> {}", i, name, detail::short_json(value),
                                 detail::short_json(now[name])));
    }
  }
  differences.insert(differences.end(), told.begin(), told.end());
  return rates_are_new;
}

namespace detail {

inline std::int64_t steps_in(const std::string& name, const torch::Tensor& step) {
  constexpr std::int64_t most = std::int64_t{1} << 53;  // a double, as which kernels take it, has no more
  if (!step.defined() || step.numel() != 1 || !at::isIntegralType(step.scalar_type(), false) ||
      step.item<std::int64_t>() < 1 || step.item<std::int64_t>() >= most) {
    throw CheckpointError(
        fmt::format("the optimizer state '{}.step' is no positive whole number below 2^53", name));
  }
  return step.item<std::int64_t>();
}

inline void check_moment(const std::string& name, at::IntArrayRef sizes, const torch::Tensor& given) {
  if (!given.defined()) throw CheckpointError(fmt::format("the optimizer state '{}' is undefined", name));
  if (given.sizes() != sizes || given.layout() != at::kStrided || !at::isFloatingType(given.scalar_type())) {
    throw CheckpointError(
        fmt::format("the optimizer state '{}' is {} {}, expected a floating-point tensor {}", name,
                    c10::toString(given.scalar_type()), given.sizes().vec(), sizes.vec()));
  }
}

}  // namespace detail

inline std::vector<Optimizer::SlotState> Optimizer::match(const NamedTensors& state) {
  std::unordered_map<std::string_view, const torch::Tensor*> given;
  for (const auto& [name, tensor] : state) {
    if (!given.emplace(name, &tensor).second)
      throw CheckpointError(fmt::format("the optimizer state has two '{}'", name));
  }
  const auto& slots = flat_.layout()->slots;
  std::vector<SlotState> loaded(slots.size());
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const std::string& name = slots[i].name;
    const auto step = given.find(name + ".step");
    if (step == given.end()) continue;
    loaded[i].steps = detail::steps_in(name, *step->second);
    given.erase(step);
    for (const auto& [key, sizes] : moment_sizes(i)) {
      const auto moment = given.find(name + "." + key);
      if (moment == given.end()) {
        throw CheckpointError(
            fmt::format("the optimizer state of '{}' has no '{}'; was it another optimizer's?", name, key));
      }
      detail::check_moment(name + "." + key, sizes, *moment->second);
      loaded[i].moments.push_back(*moment->second);
      given.erase(moment);
    }
  }
  if (!given.empty()) check_leftovers(state, loaded, given);
  return loaded;
}

inline void Optimizer::check_leftovers(
    const NamedTensors& state, const std::vector<SlotState>& loaded,
    const std::unordered_map<std::string_view, const torch::Tensor*>& leftovers) const {
  std::unordered_map<std::string_view, std::size_t> slots;
  for (std::size_t i = 0; i < loaded.size(); ++i) slots.emplace(flat_.layout()->slots[i].name, i);
  std::unordered_set<std::string_view> parameters;
  for (const ParamGroup& group : groups_) {
    for (const auto& parameter : group.parameters) parameters.insert(parameter.first);
  }
  for (const auto& entry : state) {
    const std::string_view name = entry.first;
    if (!leftovers.contains(name)) continue;
    const auto dot = name.rfind('.');
    if (dot == name.npos) {
      throw CheckpointError(fmt::format("'{}' is no name of optimizer state (<parameter>.<what>)", name));
    }
    const std::string_view parameter = name.substr(0, dot);
    if (const auto slot = slots.find(parameter); slot != slots.end()) {
      throw CheckpointError(
          loaded[slot->second].steps == 0
              ? fmt::format("the optimizer state of '{}' has no 'step'", parameter)
              : fmt::format("the optimizer state of '{}' holds more than this optimizer knows ('{}'); was it "
                            "another optimizer's?",
                            parameter, name.substr(dot + 1)));
    }
    if (!parameters.contains(parameter)) {
      throw CheckpointError(fmt::format(
          "there is optimizer state of '{}', which is no parameter of this optimizer", parameter));
    }
  }
}

inline void Optimizer::load_state(const NamedTensors& state) {
  const torch::NoGradGuard no_grad;
  flat_.mend();
  const std::vector<SlotState> loaded = match(state);
  for (std::size_t i = 0; i < loaded.size(); ++i) {
    flat_.set_steps(i, loaded[i].steps);
    if (loaded[i].steps == 0) {
      reset_moments(i);
      continue;
    }
    const NamedTensors views = moments(i);
    for (std::size_t m = 0; m < views.size(); ++m) views[m].second.copy_(loaded[i].moments[m]);
  }
}

}  // namespace etude
