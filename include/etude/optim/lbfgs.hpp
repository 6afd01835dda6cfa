#pragma once

#include <torch/optim/lbfgs.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>
#include "etude/error.hpp"
#include "etude/optim/options.hpp"
#include "etude/optim/torch_optimizer.hpp"
#include "etude/reflect/enum.hpp"
#include "etude/reflect/struct.hpp"

namespace etude {

ETUDE_ENUM(LineSearch, none, strong_wolfe);

struct LBFGSOptions {
  ETUDE_STRUCT(LBFGSOptions, (double, lr, "learning rate", 1.0),
               (std::int64_t, max_iter, "iterations of one step", 20),
               (std::optional<std::int64_t>, max_eval, "evaluations of one step; unset is 1.25 * max_iter"),
               (double, tolerance_grad, "ends the step when no gradient element is larger", 1e-7),
               (double, tolerance_change, "ends the step when no element changes by more", 1e-9),
               (std::int64_t, history_size, "updates that the curvature is estimated from", 100),
               (LineSearch, line_search_fn, "how the length of an iteration is found", LineSearch::none));
};

/// torch::optim::LBFGS. A step needs a closure, which it calls once for every evaluation. There is one
/// learning rate for all parameters and no weight decay; all of them are updated, with a gradient or without.
class LBFGS : public TorchOptimizer {
 public:
  /// Throws ArgumentError for groups that differ, and for weight decay.
  explicit LBFGS(const std::vector<ParameterGroup>& groups, const LBFGSOptions& options = {})
      : TorchOptimizer(make(groups, options), all_of(groups)) {}

  bool needs_closure() const override { return true; }

 private:
  static NamedTensors all_of(const std::vector<ParameterGroup>& groups) {
    NamedTensors all;
    for (const ParameterGroup& group : groups)
      all.insert(all.end(), group.parameters.begin(), group.parameters.end());
    return all;
  }

  static std::shared_ptr<torch::optim::LBFGS> make(const std::vector<ParameterGroup>& groups,
                                                   const LBFGSOptions& options) {
    detail::check_options({{"lr", options.lr, 0},
                           {"max_iter", static_cast<double>(options.max_iter), 1},
                           {"history_size", static_cast<double>(options.history_size), 1}});
    std::vector<torch::Tensor> parameters;
    for (const ParameterGroup& group : groups) {
      if (group.weight_decay.value_or(0) != 0 && !group.parameters.empty()) {
        throw ArgumentError(
            fmt::format("weight_decay is {}: must be 0 for lbfgs, which has none", *group.weight_decay));
      }
      if (group.lr.value_or(options.lr) != options.lr) {
        throw ArgumentError("lbfgs has one learning rate for all parameters, not one for each group");
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
};

}  // namespace etude
