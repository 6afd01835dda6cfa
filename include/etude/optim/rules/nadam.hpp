#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

#include "etude/optim/rule_optimizer.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

struct NAdamOptions {
  ETUDE_STRUCT(NAdamOptions, (double, lr, "learning rate" | at_least(0), 2e-3),
               (double, beta1, "decay of the mean of the gradients" | at_least(0).below(1), 0.9),
               (double, beta2, "decay of the mean of their squares" | at_least(0).below(1), 0.999),
               (double, eps, "added to the denominator" | at_least(0), 1e-8),
               (double, weight_decay, "L2 penalty, added to the gradient" | at_least(0), 0.0),
               (double, momentum_decay,
                "the momentum of a step is beta1 * (1 - 0.96^(step * momentum_decay) / 2)" | at_least(0),
                4e-3),
               (bool, decoupled_weight_decay, "decay the weights as AdamW does, without a penalty", false),
               (Rounding, rounding, "rounding of bfloat16 parameters: kahan adds 2 bytes each",
                Rounding::kahan),
               (std::int64_t, seed, "seed of stochastic rounding" | at_least(0), 0));
};

/// Adam with Nesterov momentum (Dozat 2016), equivalent to torch.optim.NAdam, except that the product of all
/// momenta is float64 instead of float32 and uses the current beta1 if a schedule changes it.
struct NAdamRule {
  using Options = NAdamOptions;

  static auto moments(const Options&) { return std::tuple(Moment{"exp_avg"}, Moment{"exp_avg_sq"}); }

  auto numbers(const RuleStep& s) {
    const auto n = static_cast<double>(s.step);
    const double momentum = options.beta1 * growth(n), next = options.beta1 * growth(n + 1);
    const double product = std::pow(options.beta1, n) * growth_product(s.step);
    const bool decoupled = options.decoupled_weight_decay;
    return std::array{s.lr * (1 - momentum) / (1 - product), s.lr * next / (1 - product * next),
                      std::sqrt(1 - std::pow(options.beta2, n)), decoupled ? 1 - s.lr * s.weight_decay : 1,
                      decoupled ? 0 : s.weight_decay};
  }

  template <class V>
  void update(V& value, const V& raw, V& mean, V& square, const auto& numbers) const {
    const auto& [gradient_rate, mean_rate, correction, keep, penalty] = numbers;
    const V gradient = raw + value * penalty;
    mean = mean * options.beta1 + gradient * (1 - options.beta1);
    square = square * options.beta2 + gradient * gradient * (1 - options.beta2);
    const V direction = gradient * gradient_rate + mean * mean_rate;
    value = value * keep - direction / (sqrt(square) / correction + options.eps);
  }

  /// The momentum of step n, divided by beta1.
  double growth(double n) const { return 1 - 0.5 * std::pow(0.96, n * options.momentum_decay); }

  double growth_product(std::int64_t step) {
    const auto wanted = static_cast<std::size_t>(step);
    while (growth_products.size() < wanted) {
      const double last = growth_products.empty() ? 1 : growth_products.back();
      const double next = last * growth(static_cast<double>(growth_products.size() + 1));
      if (next == last) break;  // all further products are equal too
      growth_products.push_back(next);
    }
    return growth_products.empty() ? 1 : growth_products[std::min(wanted, growth_products.size()) - 1];
  }

  Options options;
  std::vector<double> growth_products = {};  ///< products of `growth` up to each step, the first at index 0
};

using NAdam = RuleOptimizer<NAdamRule>;
extern template class RuleOptimizer<NAdamRule>;

}  // namespace etude::inline v0
