#include "etude/callbacks/norm_monitor.hpp"

#include <torch/types.h>

#include <algorithm>
#include <numeric>

#include "etude/model/model.hpp"
#include "etude/optim/clipping.hpp"

namespace etude::inline v0::detail {

void NormLogger::begin(const Context& e, NormDetail norm_detail, const Interval& every_n_steps) {
  timer.begin(e, every_n_steps, "every_n_steps");
  const std::string prefix = what_ == What::parameters ? "l2_norm/param/" : "l2_norm/grad/";
  const auto named = e.model.named_parameters();
  std::vector<std::size_t> all(named.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  groups_ = {{prefix + "global", std::move(all)}};
  parameters_.clear();
  for (const auto& [name, parameter] : named) {
    const auto index = parameters_.size();
    parameters_.push_back(parameter);
    if (norm_detail == NormDetail::global) continue;
    const auto dot = name.rfind('.');
    const auto title = prefix + (norm_detail == NormDetail::parameter ? name
                                 : dot == name.npos                   ? e.model.name()
                                                                      : name.substr(0, dot));
    // The first group has all parameters, even if one of them is called global.
    auto group = std::find_if(groups_.begin() + 1, groups_.end(),
                              [&](const auto& known) { return known.first == title; });
    if (group == groups_.end()) group = groups_.insert(group, {title, {}});
    group->second.push_back(index);
  }
}

void NormLogger::log(const Context& e) const {
  const torch::NoGradGuard no_grad;
  std::vector<at::Tensor> now;
  for (const auto& parameter : parameters_) {
    auto tensor = what_ == What::parameters ? parameter.detach() : parameter.grad();
    if (tensor.defined() && tensor.is_sparse()) tensor = tensor.coalesce().values();
    now.push_back(std::move(tensor));
  }
  for (const auto& [title, indices] : groups_) {
    std::vector<at::Tensor> present;
    for (const auto i : indices)
      if (now[i].defined()) present.push_back(now[i]);
    const bool is_global = &indices == &groups_.front().second;
    if (!present.empty() || is_global) e.log(title, l2_norm(present));
  }
}

void NormLogger::end() {
  parameters_.clear();
  groups_.clear();
}

}  // namespace etude::inline v0::detail
