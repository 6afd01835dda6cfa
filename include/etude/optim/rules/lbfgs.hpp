#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "etude/optim/torch_optimizer.hpp"
#include "etude/reflect/enum.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

ETUDE_ENUM(LineSearch, none, strong_wolfe);

struct LBFGSOptions {
  ETUDE_STRUCT(LBFGSOptions, (double, lr, "learning rate" | at_least(0), 1.0),
               (std::int64_t, max_iter, "iterations per step" | at_least(1), 20),
               (std::optional<std::int64_t>, max_eval,
                "evaluations per step; unset means 1.25 * max_iter" | at_least(1)),
               (double, tolerance_grad, "stop the step when no gradient element is larger", 1e-7),
               (double, tolerance_change, "stop the step when no element changes by more", 1e-9),
               (std::int64_t, history_size, "number of updates used to estimate the curvature" | at_least(1),
                100),
               (LineSearch, line_search_fn, "line search", LineSearch::none));
};

/// L-BFGS, computed by torch::optim::LBFGS. A step needs a closure and calls it for every evaluation. All
/// parameters have the same learning rate and no weight decay; all are updated, even those without a
/// gradient.
class LBFGS : public TorchOptimizer {
 public:
  using Options = LBFGSOptions;

  /// Throws ArgumentError if the groups have different options or weight decay.
  explicit LBFGS(const std::vector<ParameterGroup>& groups, const LBFGSOptions& options = {});
};

}  // namespace etude::inline v0
