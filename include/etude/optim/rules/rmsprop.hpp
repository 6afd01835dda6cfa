#pragma once

#include <array>
#include <tuple>

#include "etude/optim/rule_optimizer.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

struct RMSpropOptions {
  ETUDE_STRUCT(RMSpropOptions, (double, lr, "learning rate" | at_least(0), 1e-2),
               (double, alpha, "decay of the mean of squares" | at_least(0), 0.99),
               (double, eps, "added to the denominator" | at_least(0), 1e-8),
               (double, weight_decay, "L2 penalty, added to the gradient" | at_least(0), 0.0),
               (double, momentum, "momentum" | at_least(0), 0.0),
               (bool, centered, "divide by the standard deviation instead of the root mean square", false),
               (bool, fused, "one-pass kernels where available; false matches torch::optim bit for bit",
                true));
};

/// RMSprop (Hinton 2012), equivalent to torch::optim::RMSprop.
struct RMSpropRule {
  using Options = RMSpropOptions;

  static auto moments(const Options& o) {
    return std::tuple(Moment{"square_avg"}, OptionalMoment{"momentum_buffer", o.momentum > 0},
                      OptionalMoment{"grad_avg", o.centered});
  }

  auto numbers(const RuleStep& s) const { return std::array{s.lr, s.weight_decay}; }

  template <class V>
  void update(V& value, const V& raw, V& square, auto&& buffer, auto&& mean, const auto& numbers) const {
    const auto& [lr, penalty] = numbers;
    const V gradient = raw + value * penalty;
    square = square * options.alpha + gradient * gradient * (1 - options.alpha);
    V variance = square;
    if constexpr (is_kept<decltype(mean)>) {
      mean = mean * options.alpha + gradient * (1 - options.alpha);
      variance = square - mean * mean;
    }
    if constexpr (is_kept<decltype(buffer)>) {
      buffer = buffer * options.momentum + gradient / (sqrt(variance) + options.eps);
      value = value - buffer * lr;
    } else {
      value = value - gradient / (sqrt(variance) + options.eps) * lr;
    }
  }

  Options options;
};

using RMSprop = RuleOptimizer<RMSpropRule>;
extern template class RuleOptimizer<RMSpropRule>;

}  // namespace etude::inline v0
