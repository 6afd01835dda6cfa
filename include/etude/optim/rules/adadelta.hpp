#pragma once

#include <array>
#include <tuple>

#include "etude/optim/rule_optimizer.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

struct AdadeltaOptions {
  ETUDE_STRUCT(AdadeltaOptions, (double, lr, "factor of the update" | at_least(0), 1.0),
               (double, rho, "decay of the means of squares" | between(0, 1), 0.9),
               (double, eps, "added to the means of squares" | at_least(0), 1e-6),
               (double, weight_decay, "L2 penalty, added to the gradient" | at_least(0), 0.0),
               (bool, fused, "one-pass kernels where available; false matches torch.optim bit for bit",
                true));
};

/// Adadelta (Zeiler 2012), equivalent to torch.optim.Adadelta.
struct AdadeltaRule {
  using Options = AdadeltaOptions;

  static auto moments(const Options&) { return std::tuple(Moment{"square_avg"}, Moment{"acc_delta"}); }

  auto numbers(const RuleStep& s) const { return std::array{s.lr, s.weight_decay}; }

  template <class V>
  void update(V& value, const V& raw, V& squares, V& deltas, const auto& numbers) const {
    const auto& [lr, penalty] = numbers;
    const V gradient = raw + value * penalty;
    squares = squares * options.rho + gradient * gradient * (1 - options.rho);
    const V delta = sqrt(deltas + options.eps) / sqrt(squares + options.eps) * gradient;
    deltas = deltas * options.rho + delta * delta * (1 - options.rho);
    value = value - delta * lr;
  }

  Options options;
};

using Adadelta = RuleOptimizer<AdadeltaRule>;
extern template class RuleOptimizer<AdadeltaRule>;

}  // namespace etude::inline v0
