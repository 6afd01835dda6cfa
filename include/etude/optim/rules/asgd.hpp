#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>

#include "etude/optim/rule_optimizer.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

struct ASGDOptions {
  ETUDE_STRUCT(ASGDOptions, (double, lr, "learning rate of the first step" | at_least(0), 1e-2),
               (double, lambd, "decay of the weights and of the learning rate" | at_least(0), 1e-4),
               (double, alpha, "exponent of the learning rate's decay" | at_least(0), 0.75),
               (double, t0, "steps after which averaging starts" | at_least(0), 1e6),
               (double, weight_decay, "L2 penalty, added to the gradient" | at_least(0), 0.0));
};

/// Averaged stochastic gradient descent (Polyak and Juditsky 1992), equivalent to torch.optim.ASGD: the
/// average of the weights is `ax` in `state`; no step reads it. A changed learning rate takes effect at once
/// (in torch one step later), and the coefficients eta and mu are float64 (in torch float32).
struct ASGDRule {
  using Options = ASGDOptions;

  static auto moments(const Options&) { return std::tuple(Moment{"ax"}); }

  auto numbers(const RuleStep& s) const {
    const auto done = static_cast<double>(s.step - 1);
    const double eta = s.lr / std::pow(1 + options.lambd * s.lr * done, options.alpha);
    return std::array{1 - options.lambd * eta, eta, 1 / std::max(1., done - options.t0), s.weight_decay};
  }

  template <class V>
  void update(V& value, const V& raw, V& average, const auto& numbers) const {
    const auto& [keep, eta, mu, penalty] = numbers;
    const V gradient = raw + value * penalty;
    value = value * keep - gradient * eta;
    average = average * (1 - mu) + value * mu;
  }

  Options options;
};

using ASGD = RuleOptimizer<ASGDRule>;
extern template class RuleOptimizer<ASGDRule>;

}  // namespace etude::inline v0
