#pragma once

#include <array>
#include <tuple>

#include "etude/optim/rule_optimizer.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

struct RpropOptions {
  ETUDE_STRUCT(RpropOptions, (double, lr, "step size of the first step" | at_least(0), 1e-2),
               (double, etaminus, "factor of a step size after a change of sign" | above(0).below(1), 0.5),
               (double, etaplus, "factor of a step size after the same sign" | above(1), 1.2),
               (double, step_size_min, "minimum step size" | at_least(0), 1e-6),
               (double, step_size_max, "maximum step size" | at_least(0), 50.0));
};

/// Resilient backpropagation (Riedmiller and Braun 1993) without weight backtracking, equivalent to
/// torch.optim.Rprop. It is for gradients of the whole dataset: a step depends on their signs only. The
/// learning rate is used in a parameter's first step only, so schedules have no further effect.
struct RpropRule {
  using Options = RpropOptions;

  /// Throws ArgumentError if step_size_min is above step_size_max.
  static void check(const Options& options);

  static auto moments(const Options&) { return std::tuple(Moment{"prev"}, Moment{"step_size"}); }

  auto numbers(const RuleStep& s) const { return s.step == 1 ? std::array{0., s.lr} : std::array{1., 0.}; }

  template <class V>
  void update(V& value, const V& raw, V& previous, V& size, const auto& numbers) const {
    const auto& [keep, initial] = numbers;
    const V same_sign = raw * previous;
    const V factor = if_positive(same_sign, options.etaplus, if_positive(-same_sign, options.etaminus, 1));
    size = min(max((size * keep + initial) * factor, options.step_size_min), options.step_size_max);
    const V gradient = if_positive(-same_sign, 0, raw);
    value = value - sign(gradient) * size;
    previous = gradient;
  }

  Options options;
};

using Rprop = RuleOptimizer<RpropRule>;
extern template class RuleOptimizer<RpropRule>;

}  // namespace etude::inline v0
