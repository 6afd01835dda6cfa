#include "etude/model/carried_state.hpp"

#include <fmt/format.h>
#include <torch/types.h>

#include <ostream>
#include <string>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/data/tensors.hpp"

namespace etude::inline v0 {

torch::Tensor CarriedStateImpl::get(const std::string& name, at::IntArrayRef sizes,
                                    torch::TensorOptions options) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) return torch::zeros(sizes, options.requires_grad(false));
  if (found->second.sizes() != sizes)
    throw DataError(fmt::format(
        "the carried state '{}' is {}, and the model asks for {}: consecutive batches must have the same "
        "number of rows, as those of etude::parallel_streams have; reset() begins with zeros",
        name, describe(found->second), describe(torch::empty(sizes, options.device(torch::kMeta)))));
  return found->second.to(options.device(), options.dtype().toScalarType());
}

void CarriedStateImpl::pretty_print(std::ostream& stream) const { stream << "etude::CarriedState"; }

CarriedStates::CarriedStates(const Model& model) {
  const auto module = model ? model.module() : nullptr;
  if (!module) return;
  for (const auto& item : module->named_modules())
    if (auto state = std::dynamic_pointer_cast<CarriedStateImpl>(item.value()))
      states_.emplace_back(item.key(), std::move(state));
}

std::vector<std::string> CarriedStates::names() const {
  std::vector<std::string> names;
  for (const auto& [name, state] : states_) names.push_back(name);
  return names;
}

CarriedTensors CarriedStates::tensors() const {
  CarriedTensors all;
  for (const auto& [module, state] : states_)
    for (const auto& [name, tensor] : state->tensors()) all.emplace(module + "." + name, tensor);
  return all;
}

std::vector<std::string> CarriedStates::load(const CarriedTensors& tensors) const {
  for (const auto& [module, state] : states_) state->reset();
  std::vector<std::string> unknown;
  for (const auto& [name, tensor] : tensors) {
    bool is_known = false;
    for (const auto& [module, state] : states_)
      if (name.starts_with(module + ".")) {
        state->set(name.substr(module.size() + 1), tensor);
        is_known = true;
        break;
      }
    if (!is_known) unknown.push_back(name);
  }
  return unknown;
}

}  // namespace etude::inline v0
