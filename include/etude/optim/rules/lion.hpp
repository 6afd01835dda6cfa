#pragma once

#include <array>
#include <cstdint>
#include <tuple>

#include "etude/optim/rule_optimizer.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

struct LionOptions {
  ETUDE_STRUCT(LionOptions, (double, lr, "learning rate" | at_least(0), 1e-4),
               (double, beta1, "weight of the momentum in the update" | at_least(0).below(1), 0.9),
               (double, beta2, "decay of the momentum" | at_least(0).below(1), 0.99),
               (double, weight_decay, "decoupled weight decay" | at_least(0), 0.0),
               (Rounding, rounding, "rounding of bfloat16 parameters: kahan adds 2 bytes each",
                Rounding::kahan),
               (std::int64_t, seed, "seed of stochastic rounding" | at_least(0), 0));
};

namespace detail {

template <class OptionsOf>
struct AnyLionRule {
  using Options = OptionsOf;

  static auto moments(const Options&) { return std::tuple(Moment{"exp_avg"}); }

  auto numbers(const RuleStep& s) const { return std::array{s.lr, 1 - s.lr * s.weight_decay}; }

  template <class V>
  void update(V& value, const V& gradient, V& mean, const auto& numbers) const {
    const auto& [lr, keep] = numbers;
    value = value * keep - sign(mean * options.beta1 + gradient * (1 - options.beta1)) * lr;
    mean = mean * options.beta2 + gradient * (1 - options.beta2);
  }

  Options options;
};

}  // namespace detail

/// Lion (Chen et al. 2023): moves every element by lr, in the direction of the sign of beta1 * momentum + (1
/// - beta1) * gradient.
struct LionRule : detail::AnyLionRule<LionOptions> {};
using Lion = RuleOptimizer<LionRule>;
extern template class RuleOptimizer<LionRule>;

}  // namespace etude::inline v0
