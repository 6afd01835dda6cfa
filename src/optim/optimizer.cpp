#include "etude/optim/optimizer.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
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

#include "etude/base/error.hpp"
#include "etude/libtorch/storage.hpp"
#include "etude/optim/clipping.hpp"
#include "etude/optim/flat_parameters.hpp"
#include "etude/optim/group_options.hpp"
#include "etude/optim/parameter_groups.hpp"
#include "etude/reflect/three_way.hpp"

namespace etude::inline v0 {

std::vector<ParamGroup> Optimizer::complete(const std::vector<ParameterGroup>& groups, double lr,
                                            double weight_decay) {
  std::vector<ParamGroup> result;
  for (const ParameterGroup& group : groups) {
    const double group_lr = group.lr.value_or(lr);
    result.push_back({group.parameters, group_lr, group_lr, group.weight_decay.value_or(weight_decay)});
  }
  return result;
}

nlohmann::ordered_json Optimizer::numbers_of(const ParamGroup& group) {
  nlohmann::ordered_json numbers{
      {"lr", group.lr}, {"initial_lr", group.initial_lr}, {"weight_decay", group.weight_decay}};
  for (const auto& [name, value] : group.kept) numbers[name] = value;
  return numbers;
}

std::vector<NamedTensors> Optimizer::tensors_of(const std::vector<ParamGroup>& groups) {
  std::vector<NamedTensors> result;
  for (const ParamGroup& group : groups) result.push_back(group.parameters);
  return result;
}

Optimizer::~Optimizer() = default;

torch::Tensor Optimizer::step(const Closure& closure) {
  torch::Tensor loss;
  if (closure) {
    const torch::AutoGradMode with_grad(true);
    loss = closure();
  }
  const torch::NoGradGuard no_grad;
  update();
  gradient_scale_ = 1;
  return loss;
}

const std::vector<FlatRange>& Optimizer::begin_step() {
  const std::vector<FlatRange>& ranges = flat_.begin_step();
  for (const FlatRange& range : ranges) {
    if (!flat_.is_sparse(range.first)) continue;
    const std::string fault = sparse_fault(groups_[range.group]);
    if (!fault.empty())
      throw ArgumentError(fmt::format("parameter '{}' has a sparse gradient, {}",
                                      flat_.layout()->slots[range.first].name, fault));
  }
  return ranges;
}

std::string Optimizer::sparse_fault(const ParamGroup& /*group*/) const {
  return fmt::format(
      "which {} can't use: optim must be one of {} for it, or the option sparse of its layer false", type(),
      optimizers_with(&OptimizerTraits::takes_sparse_gradients));
}

OptimizerTraits Optimizer::traits() const { return {}; }

bool Optimizer::make_capturable() {
  is_prepared_ = false;
  return set_mode(StepMode::captured);
}

bool Optimizer::set_mode(StepMode /*mode*/) { return false; }

void Optimizer::write_numbers(std::int64_t /*ahead*/) {}

bool Optimizer::use_weights(WeightsInUse /*which*/) { return false; }

void Optimizer::prepare_captured_step() {
  write_numbers(1);
  is_prepared_ = true;
}

void Optimizer::count_replayed_step() {
  is_prepared_ = false;
  flat_.repeat_step();
}

void Optimizer::zero_grad() { flat_.zero_grad(/*apart=*/uses_kernels()); }

torch::Tensor Optimizer::clip_grad_norm_in_step(double max_norm) {
  if (!uses_kernels()) return clip_grad_norm(max_norm);
  const torch::Tensor norm = grad_norm();
  gradient_scale_ = clip_factor(norm, max_norm);
  return norm;
}

bool Optimizer::uses_kernels() const { return false; }

torch::Tensor Optimizer::scaled(const torch::Tensor& gradients) const {
  return gradient_scale_ == 1 ? gradients : gradients.mul(gradient_scale_);
}

std::vector<ParamGroup>& Optimizer::param_groups() { return groups_; }

void Optimizer::set_learning_rates(std::size_t group, double lr, double initial_lr) {
  groups_[group].lr = lr;
  groups_[group].initial_lr = initial_lr;
}

std::string Optimizer::type() const { return detail::class_name(*this); }

Optimizer::Optimizer(const std::vector<ParameterGroup>& groups, double lr, double weight_decay)
    : groups_(complete(groups, lr, weight_decay)), flat_(tensors_of(groups_)) {
  if (flat_.layout()->slots.empty()) {
    throw ArgumentError(
        "the optimizer has no parameters to train: either all are frozen or the model has none (layers need "
        "register_module)");
  }
  for (const ParamGroup& group : groups_) given_.push_back(numbers_of(group));
}

Optimizer::NamedSizes Optimizer::moment_sizes(std::size_t slot) {
  NamedSizes result;
  for (const auto& [key, tensor] : moments(slot))
    result.push_back({key, tensor.sizes().vec(), tensor.scalar_type()});
  return result;
}

nlohmann::ordered_json Optimizer::with_numbers_of(std::size_t group,
                                                  const nlohmann::ordered_json& options) const {
  return detail::overlaid(options, numbers_of(groups_[group]));
}

std::function<void()> Optimizer::setter_of_options(std::size_t group, const nlohmann::ordered_json& merged,
                                                   const nlohmann::ordered_json& given) {
  const detail::GroupNumbers numbers(merged, given, fmt::format("param_groups[{}].", group),
                                     groups_[group].kept);
  numbers.check();
  return [this, group, lr = numbers.lr, initial_lr = numbers.initial_lr, decay = numbers.weight_decay,
          kept = numbers.kept] {
    set_learning_rates(group, lr, initial_lr);
    groups_[group].weight_decay = decay;
    groups_[group].kept = kept;
  };
}

nlohmann::ordered_json Optimizer::given_options(std::size_t group) {
  return detail::overlaid(group_options(group), given_[group]);
}

NamedTensors Optimizer::state() {
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

std::int64_t Optimizer::state_bytes() {
  std::vector<torch::Tensor> tensors;
  for (auto& [name, tensor] : state())
    if (!name.ends_with(".step") && !name.ends_with(detail::training_weights_suffix))
      tensors.push_back(std::move(tensor));
  return libtorch::storage_bytes(tensors);
}

nlohmann::ordered_json Optimizer::options_state() {
  auto given = nlohmann::ordered_json::array(), changed_now = given;
  param_groups();
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    given.push_back(given_options(i));
    changed_now.push_back(changed(given.back(), group_options(i)));
  }
  return {{"type", type()}, {"given", given}, {"changed", changed_now}};
}

bool Optimizer::load_options(const nlohmann::ordered_json& saved, std::vector<std::string>& differences) {
  const detail::SavedOptions then(saved, groups_.size());
  const bool same_type = then.type == type();
  std::vector<std::string> reported;
  if (!same_type) reported.push_back(fmt::format("optimizer: {} -> {}", then.type, type()));
  std::vector<nlohmann::ordered_json> merged;
  std::vector<std::function<void()>> setters;
  bool rates_are_new = false;
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    const nlohmann::ordered_json given = given_options(i);
    merged.push_back(detail::merge_options(then.given[i], then.changed[i], given, same_type, reported,
                                           fmt::format("param_groups[{}]", i)));
    setters.push_back(setter_of_options(i, merged[i], given));
    rates_are_new |= then.given[i].contains("lr") && !detail::same_json(then.given[i]["lr"], given["lr"]);
  }
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    setters[i]();
    nlohmann::ordered_json now = group_options(i);
    const auto overruled = changed(now, merged[i]);
    for (const auto& [name, value] : overruled.items()) {
      reported.push_back(fmt::format("param_groups[{}].{}: {} -> {}", i, name, detail::short_json(value),
                                     detail::short_json(now[name])));
    }
  }
  differences.insert(differences.end(), reported.begin(), reported.end());
  return rates_are_new;
}

namespace detail {

namespace {

std::int64_t steps_in(const std::string& name, const torch::Tensor& step) {
  constexpr std::int64_t most = std::int64_t{1} << 53;  // kernels take it as a double
  if (!step.defined() || step.numel() != 1 || !at::isIntegralType(step.scalar_type(), false) ||
      step.item<std::int64_t>() < 1 || step.item<std::int64_t>() >= most) {
    throw CheckpointError(
        fmt::format("the optimizer state '{}.step' isn't a positive whole number below 2^53", name));
  }
  return step.item<std::int64_t>();
}

void check_moment(const std::string& name, at::IntArrayRef sizes, at::ScalarType type,
                  const torch::Tensor& given) {
  if (!given.defined()) throw CheckpointError(fmt::format("the optimizer state '{}' is undefined", name));
  const bool is_floating = at::isFloatingType(type);
  const bool has_type = is_floating ? at::isFloatingType(given.scalar_type()) : given.scalar_type() == type;
  if (given.sizes() != sizes || given.layout() != at::kStrided || !has_type) {
    throw CheckpointError(fmt::format("the optimizer state '{}' is {} {}, expected a {} tensor {}", name,
                                      c10::toString(given.scalar_type()), given.sizes().vec(),
                                      is_floating ? "floating-point" : c10::toString(type), sizes.vec()));
  }
}

}  // namespace

}  // namespace detail

std::vector<Optimizer::SlotState> Optimizer::match(const NamedTensors& state) {
  std::unordered_map<std::string_view, const torch::Tensor*> given;
  for (const auto& [name, tensor] : state) {
    if (!given.emplace(name, &tensor).second)
      throw CheckpointError(fmt::format("the optimizer state contains '{}' twice", name));
  }
  const auto& slots = flat_.layout()->slots;
  std::vector<SlotState> loaded(slots.size());
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const std::string& name = slots[i].name;
    const auto step = given.find(name + ".step");
    if (step == given.end()) continue;
    loaded[i].steps = detail::steps_in(name, *step->second);
    given.erase(step);
    for (const auto& [key, sizes, type, saved] : moment_sizes(i)) {
      const auto moment = given.find(name + "." + key);
      if (saved == SavedMoment::ignored) {
        if (moment != given.end()) given.erase(moment);
        continue;
      }
      if (moment == given.end()) {
        if (saved == SavedMoment::optional) {
          loaded[i].moments.emplace_back();
          continue;
        }
        throw CheckpointError(fmt::format(
            "the optimizer state of '{}' has no '{}'; was it saved by another optimizer?", name, key));
      }
      detail::check_moment(name + "." + key, sizes, type, *moment->second);
      loaded[i].moments.push_back(*moment->second);
      given.erase(moment);
    }
  }
  if (!given.empty()) check_leftovers(state, loaded, given);
  return loaded;
}

void Optimizer::check_leftovers(
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
      throw CheckpointError(
          fmt::format("'{}' isn't a valid name of optimizer state (<parameter>.<moment>)", name));
    }
    const std::string_view parameter = name.substr(0, dot);
    const auto slot = slots.find(parameter);
    if (slot != slots.end()) {
      throw CheckpointError(
          loaded[slot->second].steps == 0
              ? fmt::format("the optimizer state of '{}' has no 'step'", parameter)
              : fmt::format("the optimizer state of '{}' has an unknown '{}'; was it saved by "
                            "another optimizer?",
                            parameter, name.substr(dot + 1)));
    }
    if (!parameters.contains(parameter)) {
      throw CheckpointError(fmt::format(
          "the optimizer state contains '{}', which isn't a parameter of this optimizer", parameter));
    }
  }
}

void Optimizer::load_state(const NamedTensors& state) {
  const torch::NoGradGuard no_grad;
  flat_.mend();
  const std::vector<SlotState> loaded = match(state);
  for (std::size_t i = 0; i < loaded.size(); ++i) {
    flat_.set_steps(i, loaded[i].steps);
    set_moments(i, loaded[i].moments);
  }
}

}  // namespace etude::inline v0
