#include "etude/optim/model_freezer.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/modules/batchnorm.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/optim/parameter_groups.hpp"
#include "etude/optim/parameter_rules.hpp"

namespace etude::inline v0 {
namespace detail {

namespace {

bool is_batch_norm(const torch::nn::Module& module) {
  return module.as<torch::nn::BatchNorm1dImpl>() || module.as<torch::nn::BatchNorm2dImpl>() ||
         module.as<torch::nn::BatchNorm3dImpl>();
}

}  // namespace

}  // namespace detail

ModelFreezer::ModelFreezer(const Model& model, Options options)
    : model_(model.module()), options_(std::move(options)) {
  if (!model_)
    throw ArgumentError(
        fmt::format("ModelFreezer: {} is TorchScript; only torch::nn modules are supported", model.name()));
  if (options_.layer_groups.empty())
    for (const auto& child : model_->named_children()) groups_.push_back({child.key(), child.value()});
  for (const auto& pattern : options_.layer_groups) add_groups(pattern);
  if (groups_.empty())
    throw ArgumentError(
        fmt::format("ModelFreezer: {} has no child modules to use as layer groups", model.name()));
  for (auto& parameter : model_->parameters()) {
    if (options_.keep_frozen && !parameter.requires_grad())
      kept_.insert(parameter.unsafeGetTensorImpl());
    else
      parameter.set_requires_grad(true);
  }
}

void ModelFreezer::add_groups(const std::string& pattern) {
  const auto lies_in = [](std::string_view inner, std::string_view outer) {
    return inner.starts_with(outer) && (inner.size() == outer.size() || inner[outer.size()] == '.');
  };
  std::string last;  // the last match; children follow their parents
  bool is_found = false;
  for (const auto& item : model_->named_modules("", /*include_self=*/false)) {
    const auto& name = item.key();
    if ((is_found && lies_in(name, last)) || !detail::matches(pattern, name)) continue;
    last = name;
    is_found = true;
    for (const auto& group : groups_)
      if (lies_in(group.name, name) || lies_in(name, group.name))
        throw ArgumentError(fmt::format(
            "layer_groups has '{}' and '{}': must be separate, but one of them contains the other",
            group.name, name));
    groups_.push_back({name, item.value()});
  }
  if (is_found) return;
  std::vector<std::string> names;
  for (const auto& item : model_->named_modules("", /*include_self=*/false)) names.push_back(item.key());
  throw ArgumentError(fmt::format("layer_groups has '{}': must name a module, such as {}", pattern,
                                  fmt::join(detail::similar_names(pattern, names), ", ")));
}

std::vector<NamedModule> ModelFreezer::get_layers() const {
  std::vector<NamedModule> layers;
  for (const auto& item : model_->named_modules("", /*include_self=*/false))
    if (item.value()->children().empty()) layers.push_back({item.key(), item.value()});
  return layers;
}

NamedTensors ModelFreezer::get_trainable_parameters() const {
  auto parameters = named_parameters(*model_);
  std::erase_if(parameters, [](const auto& item) { return !item.second.requires_grad(); });
  return parameters;
}

void ModelFreezer::freeze(const Freezing& which) {
  const auto [first, last] = range(which.from_index, which.to_index);
  for (auto i = first; i <= last; ++i) {
    auto& group = *groups_[i].module;
    std::vector<std::pair<torch::nn::Module*, bool>> spared;  // with their training modes
    for (const auto& module : group.modules()) {
      if (!options_.freeze_batch_norms && detail::is_batch_norm(*module)) {
        spared.emplace_back(module.get(), module->is_training());
        continue;
      }
      for (auto& parameter : module->parameters(/*recurse=*/false)) parameter.set_requires_grad(false);
    }
    if (!which.set_modules_as_eval) continue;
    group.eval();
    for (const auto& [module, was_training] : spared) module->train(was_training);
  }
}

std::vector<UnfrozenGroup> ModelFreezer::unfreeze(const Unfreezing& which) {
  const auto [first, last] = range(which.from_index, which.to_index);
  std::vector<UnfrozenGroup> unfrozen;
  for (auto i = first; i <= last; ++i) {
    const auto& [group_name, group] = groups_[i];
    UnfrozenGroup changed{group_name, {}};
    for (auto& [name, parameter] : named_parameters(*group)) {
      if (parameter.requires_grad() || kept_.contains(parameter.unsafeGetTensorImpl())) continue;
      parameter.set_requires_grad(true);
      changed.parameters.emplace_back(group_name + "." + name, parameter);
    }
    if (!changed.parameters.empty()) unfrozen.push_back(std::move(changed));
    if (which.set_modules_as_training) group->train();
  }
  return unfrozen;
}

std::pair<std::size_t, std::size_t> ModelFreezer::range(std::int64_t from_index,
                                                        std::int64_t to_index) const {
  return std::minmax({position("from_index", from_index), position("to_index", to_index)});
}

std::size_t ModelFreezer::position(const char* field, std::int64_t index) const {
  const auto count = static_cast<std::int64_t>(groups_.size());
  if (index < -count || index >= count)
    throw ArgumentError(fmt::format("{} is {}: must be {} to {} for a model with {} layer groups", field,
                                    index, -count, count - 1, count));
  return static_cast<std::size_t>(index < 0 ? index + count : index);
}

}  // namespace etude::inline v0
