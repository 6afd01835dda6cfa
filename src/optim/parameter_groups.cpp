#include "etude/optim/parameter_groups.hpp"

#include <torch/nn/module.h>
#include <torch/types.h>

#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "etude/base/lower_case.hpp"
#include "etude/model/norm_parameters.hpp"

namespace etude::inline v0 {
namespace detail {

namespace {

/// True if a C++ type is named like a normalization: `torch::nn::BatchNorm2dImpl`, or a user's `RMSNormImpl`.
bool names_norm(std::string_view type) {
  type = type.substr(0, type.find('<'));
  if (const auto colon = type.rfind(':'); colon != std::string_view::npos) type.remove_prefix(colon + 1);
  if (type.ends_with("Impl")) type.remove_suffix(4);
  for (std::string_view dimensions : {"1d", "2d", "3d"}) {
    if (type.ends_with(dimensions)) type.remove_suffix(2);
  }
  return lower_case(type).ends_with("norm");
}

}  // namespace

}  // namespace detail

NamedTensors named_parameters(const torch::nn::Module& module) {
  NamedTensors result;
  for (const auto& item : module.named_parameters()) result.emplace_back(item.key(), item.value());
  return result;
}

bool decays_by_name(std::string_view name) {
  const std::string text = detail::lower_case(name);
  for (std::string_view word : {"bias", "layernorm", "rmsnorm"}) {
    if (text.find(word) != std::string::npos) return false;
  }
  for (std::size_t begin = 0, end = 0; end != std::string::npos; begin = end + 1) {
    end = text.find('.', begin);
    const std::string_view part = std::string_view(text).substr(begin, end - begin);
    if (part == "norm" || part.ends_with("_norm")) return false;
  }
  return true;
}

namespace detail {

template <typename Decays>
std::vector<ParameterGroup> split(const NamedTensors& parameters, double weight_decay, Decays decays) {
  std::vector<ParameterGroup> groups{{.parameters = {}, .lr = {}, .weight_decay = weight_decay},
                                     {.parameters = {}, .lr = {}, .weight_decay = 0.0}};
  std::unordered_set<const void*> seen;
  for (const auto& [name, tensor] : parameters) {
    if (!seen.insert(tensor.unsafeGetTensorImpl()).second) continue;
    groups[decays(name, tensor) ? 0 : 1].parameters.emplace_back(name, tensor);
  }
  return groups;
}

}  // namespace detail

std::vector<ParameterGroup> parameter_groups(const NamedTensors& parameters, double weight_decay) {
  return detail::split(parameters, weight_decay,
                       [](const std::string& name, const torch::Tensor&) { return decays_by_name(name); });
}

std::vector<ParameterGroup> parameter_groups(const torch::nn::Module& module, double weight_decay) {
  std::unordered_set<const void*> spared;
  const auto spare_norm = [&](const torch::nn::Module& part) {
    if (const auto* knows = dynamic_cast<const HasNormParameters*>(&part))
      for (const auto& tensor : knows->norm_parameters()) spared.insert(tensor.unsafeGetTensorImpl());
    if (!detail::names_norm(part.name())) return;
    for (const auto& tensor : part.parameters(/*recurse=*/false)) spared.insert(tensor.unsafeGetTensorImpl());
  };
  spare_norm(module);
  // Including the module itself would throw for a module that isn't owned by a shared_ptr.
  for (const auto& part : module.modules(/*include_self=*/false)) spare_norm(*part);
  return detail::split(named_parameters(module), weight_decay,
                       [&](const std::string& name, const torch::Tensor& tensor) {
                         return !spared.contains(tensor.unsafeGetTensorImpl()) && decays_by_name(name);
                       });
}

}  // namespace etude::inline v0
