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
  auto found = moments_.find(name);
  if (found == moments_.end()) found = moments_.emplace(name, initial_moments(name, parameter)).first;
  for (auto& [key, tensor] : found->second) {
    // Codes of 8 bits and their scales don't depend on the parameter's dtype.
    const bool has_its_type = tensor.is_floating_point() && !key.ends_with("_absmax");
    tensor =
        tensor.to(parameter.device(), has_its_type ? detail::update_type(parameter) : tensor.scalar_type());
  }
  return found->second;
}

}  // namespace etude::inline v0
