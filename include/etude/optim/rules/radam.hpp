#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <tuple>

#include "etude/optim/rule_optimizer.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

struct RAdamOptions {
  ETUDE_STRUCT(RAdamOptions, (double, lr, "learning rate" | at_least(0), 1e-3),
               (double, beta1, "decay of the mean of the gradients" | at_least(0).below(1), 0.9),
               (double, beta2, "decay of the mean of their squares" | at_least(0).below(1), 0.999),
               (double, eps, "added to the denominator" | at_least(0), 1e-8),
               (double, weight_decay, "L2 penalty, added to the gradient" | at_least(0), 0.0),
               (bool, decoupled_weight_decay, "decay the weights as AdamW does, without a penalty", false),
               (Rounding, rounding, "rounding of bfloat16 parameters: kahan adds 2 bytes each",
                Rounding::kahan),
               (std::int64_t, seed, "seed of stochastic rounding" | at_least(0), 0));
};

/// Adam with a rectified learning rate (Liu et al. 2020), equivalent to torch.optim.RAdam: the first steps
/// (five with the default beta2), for which the variance of the adaptive rate is unknown, use momentum only.
struct RAdamRule {
  using Options = RAdamOptions;

  static auto moments(const Options&) { return std::tuple(Moment{"exp_avg"}, Moment{"exp_avg_sq"}); }

  auto numbers(const RuleStep& s) const {
    const auto n = static_cast<double>(s.step);
    const double power = std::pow(options.beta2, n), longest = 2 / (1 - options.beta2) - 1;
    const double length = longest - 2 * n * power / (1 - power);  // of the moving average
    double rate = s.lr / (1 - std::pow(options.beta1, n));
    const bool is_adaptive = length > 5;
    if (is_adaptive)
      rate *= std::sqrt((1 - power) * (length - 4) * (length - 2) * longest /
                        ((longest - 4) * (longest - 2) * length));
    const bool decoupled = options.decoupled_weight_decay;
    return std::array{rate, is_adaptive ? 1. : 0., is_adaptive ? options.eps : 1,
                      decoupled ? 1 - s.lr * s.weight_decay : 1, decoupled ? 0 : s.weight_decay};
  }

  template <class V>
  void update(V& value, const V& raw, V& mean, V& square, const auto& numbers) const {
    const auto& [rate, adaptive, offset, keep, penalty] = numbers;
    const V gradient = raw + value * penalty;
    mean = mean * options.beta1 + gradient * (1 - options.beta1);
    square = square * options.beta2 + gradient * gradient * (1 - options.beta2);
    value = value * keep - mean / (sqrt(square) * adaptive + offset) * rate;
  }

  Options options;
};

using RAdam = RuleOptimizer<RAdamRule>;
extern template class RuleOptimizer<RAdamRule>;

}  // namespace etude::inline v0
