#include "etude/optim/parameter_optimizer.hpp"

#include <torch/types.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace etude::inline v0 {

void ParameterOptimizer::update() {
  for (const FlatRange& range : begin_step()) {
    const ParamGroup& group = groups_[range.group];
    for (std::size_t i = range.first; i < range.last; ++i) {
      if (flat_.layout()->slots[i].size == 0) continue;
      const torch::Tensor parameter = flat_.parameter(i).detach();
      const auto type = detail::update_type(parameter);
      const torch::Tensor values = parameter.to(type);
      std::vector<torch::Tensor> moments;
      for (const auto& [name, tensor] : moments_of(i)) moments.push_back(tensor);
      update_parameter(flat_.layout()->slots[i].name, values, flat_.parameter(i).grad().to(type), moments,
                       {group.lr, group.weight_decay, range.steps, group.momentum});
      if (!values.is_same(parameter)) parameter.copy_(values);
    }
  }
}

NamedTensors ParameterOptimizer::moments(std::size_t slot) { return moments_of(slot); }

void ParameterOptimizer::set_moments(std::size_t slot, const std::vector<torch::Tensor>& values) {
  if (flat_.steps(slot) == 0) {
    moments_.erase(flat_.layout()->slots[slot].name);
    return;
  }
  const NamedTensors& views = moments_of(slot);
  for (std::size_t m = 0; m < views.size(); ++m) views[m].second.copy_(values[m]);
}

NamedTensors& ParameterOptimizer::moments_of(std::size_t slot) {
  const std::string& name = flat_.layout()->slots[slot].name;
  const torch::Tensor parameter = flat_.parameter(slot).detach();
  const auto [found, is_new] = moments_.try_emplace(name);
  if (is_new) found->second = initial_moments(name, parameter);
  for (auto& [key, tensor] : found->second) tensor = tensor.to(parameter.device());
  return found->second;
}

}  // namespace etude::inline v0
