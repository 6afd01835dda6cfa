#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "etude/base/linkage.hpp"
#include "etude/optim/torch_optimizer.hpp"
#include "etude/reflect/enum.hpp"
#include "etude/reflect/struct.hpp"

namespace etude {

ETUDE_ENUM(LineSearch, none, strong_wolfe);

struct LBFGSOptions {
  ETUDE_STRUCT(LBFGSOptions, (double, lr, "learning rate" | at_least(0), 1.0),
               (std::int64_t, max_iter, "iterations of one step" | at_least(1), 20),
               (std::optional<std::int64_t>, max_eval,
                "evaluations of one step; unset is 1.25 * max_iter" | at_least(1)),
               (double, tolerance_grad, "ends the step when no gradient element is larger", 1e-7),
               (double, tolerance_change, "ends the step when no element changes by more", 1e-9),
               (std::int64_t, history_size, "updates that the curvature is estimated from" | at_least(1),
                100),
               (LineSearch, line_search_fn, "how the length of an iteration is found", LineSearch::none));
};

/// torch::optim::LBFGS. A step needs a closure, which it calls once for every evaluation. There is one
/// learning rate for all parameters and no weight decay; all of them are updated, with a gradient or without.
class LBFGS : public TorchOptimizer {
 public:
  /// Throws ArgumentError for groups that differ, and for weight decay.
  explicit LBFGS(const std::vector<ParameterGroup>& groups, const LBFGSOptions& options = {});

  ETUDE_INLINE bool needs_closure() const override;
};

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/optim/impl/lbfgs.ipp"
#endif
