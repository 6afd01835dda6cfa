#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace etude::inline v0 {

/// Tensors with their names in the model.
using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

/// Parameters that are trained with the same options. Unset options default to the optimizer's.
struct ParameterGroup {
  NamedTensors parameters;
  std::optional<double> lr;
  std::optional<double> weight_decay;
};

/// The parameters of `module` and its children, in the order of `named_parameters()`.
NamedTensors named_parameters(const torch::nn::Module& module);

/// True if, by its name alone, a parameter should have weight decay. Biases and normalization parameters
/// shouldn't: names that contain `bias`, `layernorm` or `rmsnorm`, or have a part `norm` or a part that ends
/// in `_norm`, in upper or lower case.
bool decays_by_name(std::string_view name);

/// Two groups: parameters with `weight_decay`, and parameters without it (see `decays_by_name`). A tied
/// parameter appears once, under its first name.
std::vector<ParameterGroup> parameter_groups(const NamedTensors& parameters, double weight_decay);

/// Like the above, but the second group also gets the parameters directly in a normalization module
/// (LayerNorm, BatchNorm1d-3d, GroupNorm, InstanceNorm1d-3d, or a user's type whose name ends in `Norm`), and
/// the parameters that the graph of an ExportedModule uses for normalization.
std::vector<ParameterGroup> parameter_groups(const torch::nn::Module& module, double weight_decay);

}  // namespace etude::inline v0
