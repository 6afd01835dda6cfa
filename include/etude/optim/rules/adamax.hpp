#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <tuple>

#include "etude/optim/rule_optimizer.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

struct AdamaxOptions {
  ETUDE_STRUCT(AdamaxOptions, (double, lr, "learning rate" | at_least(0), 2e-3),
               (double, beta1, "decay of the mean of the gradients" | at_least(0).below(1), 0.9),
               (double, beta2, "decay of their largest magnitude" | at_least(0).below(1), 0.999),
               (double, eps, "added to the magnitude of the gradient" | at_least(0), 1e-8),
               (double, weight_decay, "L2 penalty, added to the gradient" | at_least(0), 0.0),
               (bool, fused, "one-pass kernels where available; false matches torch.optim bit for bit", true),
               (Rounding, rounding, "rounding of bfloat16 parameters: kahan adds 2 bytes each",
                Rounding::kahan),
               (std::int64_t, seed, "seed of stochastic rounding" | at_least(0), 0));
};

/// Adamax (Kingma and Ba 2015, section 7.1), Adam with the infinity norm, equivalent to torch.optim.Adamax.
struct AdamaxRule {
  using Options = AdamaxOptions;

  static auto moments(const Options&) { return std::tuple(Moment{"exp_avg"}, Moment{"exp_inf"}); }

  auto numbers(const RuleStep& s) const {
    return std::array{s.lr / (1 - std::pow(options.beta1, static_cast<double>(s.step))), s.weight_decay};
  }

  template <class V>
  void update(V& value, const V& raw, V& mean, V& largest, const auto& numbers) const {
    const auto& [rate, penalty] = numbers;
    const V gradient = raw + value * penalty;
    mean = mean + (gradient - mean) * (1 - options.beta1);
    largest = max(largest * options.beta2, abs(gradient) + options.eps);
    value = value - mean / largest * rate;
  }

  Options options;
};

using Adamax = RuleOptimizer<AdamaxRule>;
extern template class RuleOptimizer<AdamaxRule>;

}  // namespace etude::inline v0
