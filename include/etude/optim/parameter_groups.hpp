#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/base/linkage.hpp"

namespace etude {

/// Tensors under the names that they have in their model.
using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

/// Parameters that are trained alike. What is not given here is the optimizer's.
struct ParameterGroup {
  NamedTensors parameters;
  std::optional<double> lr;
  std::optional<double> weight_decay;
};

/// The parameters of `module` and its children, as `named_parameters()` orders them.
NamedTensors named_parameters(const torch::nn::Module& module);

/// Whether weight decay suits a parameter, by its name alone. Biases and the parameters of normalisations are
/// spared: names with `bias`, `layernorm` or `rmsnorm` in them, with a part `norm` or a part that ends in
/// `_norm`, in upper or lower case.
bool decays_by_name(std::string_view name);

/// Two groups: parameters with `weight_decay`, and those without (see `decays_by_name`). A tied parameter
/// stands once, under its first name.
std::vector<ParameterGroup> parameter_groups(const NamedTensors& parameters, double weight_decay);

/// As above; besides, the parameters of a module's own whose type is a normalisation (LayerNorm,
/// BatchNorm1d-3d, GroupNorm, InstanceNorm1d-3d, a type of one's own whose name ends in `Norm`) is without
/// decay.
std::vector<ParameterGroup> parameter_groups(const torch::nn::Module& module, double weight_decay);

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/optim/impl/parameter_groups.ipp"
#endif
