#include "etude/optim/rules/lbfgs.hpp"

#include <fmt/format.h>
#include <torch/optim/lbfgs.h>

#include <memory>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/reflect/check_fields.hpp"

namespace etude::inline v0 {

namespace detail {

namespace {

NamedTensors all_of(const std::vector<ParameterGroup>& groups) {
  NamedTensors all;
  for (const ParameterGroup& group : groups)
    all.insert(all.end(), group.parameters.begin(), group.parameters.end());
  return all;
}

std::shared_ptr<torch::optim::LBFGS> make_lbfgs(const std::vector<ParameterGroup>& groups,
                                                const LBFGSOptions& options) {
  check_fields(options);
  std::vector<torch::Tensor> parameters;
  for (const ParameterGroup& group : groups) {
    if (group.weight_decay.value_or(0) != 0 && !group.parameters.empty()) {
      throw ArgumentError(
          fmt::format("weight_decay is {}: must be 0, since lbfgs doesn't support it", *group.weight_decay));
    }
    if (group.lr.value_or(options.lr) != options.lr) {
      throw ArgumentError("lbfgs needs the same learning rate for all groups");
    }
    for (const auto& [name, tensor] : group.parameters) {
      if (tensor.requires_grad()) parameters.push_back(tensor);
    }
  }
  auto torch_options = torch::optim::LBFGSOptions(options.lr)
                           .max_iter(options.max_iter)
                           .max_eval(options.max_eval.value_or(options.max_iter * 5 / 4))
                           .tolerance_grad(options.tolerance_grad)
                           .tolerance_change(options.tolerance_change)
                           .history_size(options.history_size);
  if (options.line_search_fn == LineSearch::strong_wolfe) torch_options.line_search_fn("strong_wolfe");
  return std::make_shared<torch::optim::LBFGS>(std::move(parameters), torch_options);
}

}  // namespace

}  // namespace detail

LBFGS::LBFGS(const std::vector<ParameterGroup>& groups, const LBFGSOptions& options)
    : TorchOptimizer(detail::make_lbfgs(groups, options), detail::all_of(groups)) {}

}  // namespace etude::inline v0
