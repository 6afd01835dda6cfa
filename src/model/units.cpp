#include "etude/model/units.hpp"

#include <fmt/format.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/sequential.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"

namespace etude::inline v0 {
namespace detail {

namespace {

/// Takes the place of a Sequential's child, which stays registered there.
class SequentialUnitImpl : public torch::nn::Module {
 public:
  SequentialUnitImpl(torch::nn::AnyModule module, UnitRunner& runner, std::size_t unit)
      : torch::nn::Module("SequentialUnit"), module_(std::move(module)), runner_(runner), unit_(unit) {}

  torch::Tensor forward(torch::Tensor input) {
    const auto forward = [module = module_](const Tensors& inputs) mutable {
      return module.forward<torch::Tensor>(inputs[0]);
    };
    return runner_.run(unit_, forward, {std::move(input)});
  }

  const torch::nn::AnyModule& module() const { return module_; }

 private:
  torch::nn::AnyModule module_;
  UnitRunner& runner_;
  std::size_t unit_;
};

bool is_run(const torch::nn::AnyModule& child) { return child.ptr()->as<SequentialUnitImpl>() != nullptr; }

struct FoundUnits {
  std::vector<NamedModule> units = {};
  std::vector<std::pair<AnyUnits*, std::vector<std::size_t>>> lists = {};  // with each element's unit index
  torch::nn::SequentialImpl* sequential = nullptr;
  std::vector<std::size_t> indices = {};  // the indices of the Sequential's children

  std::size_t index_of(std::string name, std::shared_ptr<torch::nn::Module> module) {
    const auto found = std::ranges::find(units, module, &NamedModule::module);
    const auto index = static_cast<std::size_t>(found - units.begin());
    if (found == units.end()) units.push_back({std::move(name), std::move(module)});
    return index;
  }

  bool contains(const std::string& name) const {
    return std::ranges::any_of(units, [&](const auto& unit) { return name.starts_with(unit.name + "."); });
  }
};

}  // namespace

FoundUnits find_units(const Model& model) {
  const auto module = model.module();
  if (!module)
    throw ArgumentError(fmt::format(
        "model: {} is TorchScript, which has no units: must be a torch::nn module", model.name()));
  FoundUnits found;
  if ((found.sequential = module->as<torch::nn::SequentialImpl>())) {
    for (const auto& child : module->named_children())
      found.indices.push_back(found.index_of(child.key(), child.value()));
  } else {
    for (const auto& item : module->named_modules()) {
      auto* list = dynamic_cast<AnyUnits*>(item.value().get());
      if (!list || found.contains(item.key())) continue;
      if (std::ranges::find(found.lists, list, [](const auto& one) { return one.first; }) !=
          found.lists.end())
        continue;
      auto& indices = found.lists.emplace_back(list, std::vector<std::size_t>()).second;
      const auto prefix = item.key().empty() ? "" : item.key() + ".";
      for (auto& unit : list->modules())
        indices.push_back(found.index_of(prefix + std::to_string(indices.size()), std::move(unit)));
    }
  }
  if (found.units.empty())
    throw ArgumentError(
        fmt::format("model: {} has no units: must be a torch::nn::Sequential with layers, or hold its layers "
                    "in etude::Units",
                    model.name()));
  return found;
}

}  // namespace detail

std::vector<NamedModule> units(const Model& model) { return detail::find_units(model).units; }

bool are_units_run(const Model& model) {
  const auto found = detail::find_units(model);
  return std::ranges::any_of(found.lists, [](const auto& list) { return list.first->runner(); }) ||
         (found.sequential &&
          std::any_of(found.sequential->begin(), found.sequential->end(), detail::is_run));
}

UnitsGuard run_units(const Model& model, UnitRunner& runner) {
  const auto found = detail::find_units(model);
  if (are_units_run(model))
    throw Error(fmt::format("the units of {} are already run in another way", model.name()));

  for (const auto& [list, indices] : found.lists) list->set_runner(&runner, indices);
  if (found.sequential) {
    auto index = found.indices.begin();
    for (auto& child : *found.sequential)
      child = torch::nn::AnyModule(
          std::make_shared<detail::SequentialUnitImpl>(std::move(child), runner, *index++));
  }
  return UnitsGuard([lists = found.lists, sequential = found.sequential, module = model.module()] {
    for (const auto& [list, indices] : lists) list->set_runner(nullptr, indices);
    if (!sequential) return;
    for (auto& child : *sequential)
      if (detail::is_run(child))
        child = torch::nn::AnyModule(child.ptr()->as<detail::SequentialUnitImpl>()->module());
  });
}

}  // namespace etude::inline v0
