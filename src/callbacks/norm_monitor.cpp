#include "etude/callbacks/norm_monitor.hpp"

#include <torch/types.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "etude/model/model.hpp"
#include "etude/optim/clipping.hpp"

namespace etude::inline v0::detail {

std::string NormLogger::prefix() const {
  return what_ == What::parameters ? "l2_norm/param/" : "l2_norm/grad/";
}

void NormLogger::begin(const Context& e, IntervalTimer& timer, const Interval& every_n_steps) {
  timer.begin(e, every_n_steps, "every_n_steps");
  parameters_.clear();
  layers_.clear();
  for (const auto& [name, parameter] : e.model.named_parameters()) {
    const auto dot = name.rfind('.');
    layers_.push_back(prefix() + (dot == name.npos ? e.model.name() : name.substr(0, dot)));
    parameters_.emplace_back(prefix() + name, parameter);
  }
}

void NormLogger::log(const Context& e, NormDetail norm_detail) {
  const torch::NoGradGuard no_grad;
  now_.clear();
  std::vector<at::Tensor> present;
  for (const auto& [name, parameter] : parameters_) {
    auto tensor = what_ == What::parameters ? parameter.detach() : parameter.grad();
    if (tensor.defined() && tensor.is_sparse()) tensor = tensor.coalesce().values();
    if (tensor.defined()) present.push_back(tensor);
    now_.push_back(std::move(tensor));
  }
  e.log(prefix() + "global", l2_norm(present));
  if (norm_detail == NormDetail::layer) log_layers(e);
  if (norm_detail == NormDetail::parameter)
    for (std::size_t i = 0; i < now_.size(); ++i)
      if (now_[i].defined()) e.log(parameters_[i].first, l2_norm(now_[i]));
  now_.clear();
}

void NormLogger::log_layers(const Context& e) const {
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    if (std::find(layers_.begin(), layers_.begin() + static_cast<std::ptrdiff_t>(i), layers_[i]) !=
        layers_.begin() + static_cast<std::ptrdiff_t>(i))
      continue;
    std::vector<at::Tensor> of_layer;
    for (std::size_t k = i; k < layers_.size(); ++k)
      if (layers_[k] == layers_[i] && now_[k].defined()) of_layer.push_back(now_[k]);
    if (!of_layer.empty()) e.log(layers_[i], l2_norm(of_layer));
  }
}

}  // namespace etude::inline v0::detail
