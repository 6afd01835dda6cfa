#include "etude/model/modules.hpp"

#include <fmt/format.h>
#include <torch/nn/module.h>
#include <torch/types.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/data/tensors.hpp"
#include "etude/libtorch/foreach.hpp"
#include "etude/model/model.hpp"

namespace etude::inline v0 {

using Role = PartOfModel::Role;

PartOfModel frozen(Model module, FrozenOptions options) {
  PartOfModel part(std::move(module), Role::frozen);
  part.is_saved = options.save;
  return part;
}

PartOfModel target_of(std::string source, Model module, TargetOptions options) {
  PartOfModel part(std::move(module), Role::target);
  part.source = std::move(source);
  part.target_options = options;
  return part;
}

ModulesImpl::ModulesImpl(std::vector<NamedPart> parts) : parts_(std::move(parts)) {
  if (parts_.empty()) throw ArgumentError("Modules: there is no module; name at least one");
  std::set<std::string> names;
  for (const auto& [name, part] : parts_) {
    if (name.empty() || name.find('.') != std::string::npos)
      throw ArgumentError(fmt::format("Modules: the name '{}' must not be empty or have a dot", name));
    if (!names.insert(name).second)
      throw ArgumentError(fmt::format("Modules: the name '{}' is given twice", name));
    if (!part.model) throw ArgumentError(fmt::format("Modules: {} has no module", name));
    if (!part.is_saved) continue;
    auto module = part.model.module();
    if (!module)
      throw ArgumentError(fmt::format("Modules: {} is TorchScript: wrap it in etude::ScriptModule", name));
    register_module(name, std::move(module));
  }
  for (const auto& named : parts_) {
    if (named.part.role == Role::trained) continue;
    for (auto& parameter : named.part.model.parameters()) parameter.requires_grad_(false);
    if (named.part.role == Role::target) check_target(named);
  }
  for (const auto& named : parts_)
    if (named.part.role == Role::target) add_follower(named);
  train(is_training());
}

void ModulesImpl::check_target(const NamedPart& target) const {
  const auto& [decay, every] = target.part.target_options;
  if (!(decay >= 0 && decay < 1))
    throw ArgumentError(fmt::format("Modules: the decay of {} is {}: must be in [0, 1)", target.name, decay));
  if (every < 1)
    throw ArgumentError(fmt::format("Modules: every of {} is {}: must be at least 1", target.name, every));
  if (source_of(target).module() == target.part.model.module())
    throw ArgumentError(
        fmt::format("Modules: {} is the same module as its source {}", target.name, target.part.source));
}

const Model& ModulesImpl::source_of(const NamedPart& target) const {
  const auto source = std::ranges::find(parts_, target.part.source, &NamedPart::name);
  if (source == parts_.end() || source->part.role != Role::trained)
    throw ArgumentError(
        fmt::format("Modules: {} is a target of '{}', which must be the name of a module that is trained",
                    target.name, target.part.source));
  return source->part.model;
}

void ModulesImpl::add_follower(const NamedPart& target) {
  const auto& source = source_of(target);
  target.part.model.load_state_dict(source.state_dict());
  std::unordered_map<std::string, torch::Tensor> values;
  for (auto& [name, value] : source.state_dict()) values.emplace(name, std::move(value));
  Follower follower{.options = target.part.target_options};
  for (auto& [name, parameter] : target.part.model.named_parameters()) {
    follower.ends.push_back(values.at(name));
    follower.parameters.push_back(std::move(parameter));
  }
  for (auto& [name, buffer] : target.part.model.named_buffers())
    follower.buffers.emplace_back(std::move(buffer), values.at(name));
  followers_.push_back(std::move(follower));
}

void ModulesImpl::move_targets(std::int64_t step) {
  const torch::NoGradGuard no_grad;
  for (auto& [options, parameters, ends, buffers] : followers_) {
    if (step % options.every != 0) continue;
    if (options.decay > 0)
      libtorch::foreach_lerp_(parameters, ends, 1 - options.decay);
    else
      for (std::size_t i = 0; i < ends.size(); ++i) parameters[i].copy_(ends[i]);
    for (auto& [copy, buffer] : buffers) copy.copy_(buffer);
  }
}

void ModulesImpl::train(bool on) {
  torch::nn::Module::train(on);
  for (const auto& [name, part] : parts_) {
    if (part.role != Role::trained) part.model.eval();
  }
}

void ModulesImpl::to(torch::Device device, torch::Dtype dtype, bool non_blocking) {
  to(device, non_blocking);
  to(dtype, non_blocking);
}

void ModulesImpl::to(torch::Dtype dtype, bool non_blocking) {
  torch::nn::Module::to(dtype, non_blocking);
  for (const auto& [name, part] : parts_) {
    if (!part.is_saved && part.model.module()) part.model.module()->to(dtype, non_blocking);
  }
}

void ModulesImpl::to(torch::Device device, bool non_blocking) {
  torch::nn::Module::to(device, non_blocking);
  for (const auto& [name, part] : parts_) {
    if (!part.is_saved) part.model.to(device);
  }
}

}  // namespace etude::inline v0
