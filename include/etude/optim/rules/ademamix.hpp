#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <tuple>

#include "etude/optim/rule_optimizer.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

struct AdEMAMixOptions {
  ETUDE_STRUCT(AdEMAMixOptions, (double, lr, "learning rate" | at_least(0), 1e-3),
               (double, beta1, "decay of the fast mean of the gradients" | at_least(0).below(1), 0.9),
               (double, beta2, "decay of the mean of their squares" | at_least(0).below(1), 0.999),
               (double, beta3, "decay of the slow mean of the gradients" | at_least(0).below(1), 0.9999),
               (double, alpha, "weight of the slow mean" | at_least(0), 5.0),
               (std::int64_t, t_alpha, "steps over which alpha grows from 0; 0: constant" | at_least(0), 0),
               (std::int64_t, t_beta3, "steps over which beta3 grows from beta1; 0: constant" | at_least(0),
                0),
               (double, eps, "added to the denominator" | at_least(0), 1e-8),
               (double, weight_decay, "decoupled weight decay" | at_least(0), 0.0),
               (Rounding, rounding, "rounding of bfloat16 parameters: kahan adds 2 bytes each",
                Rounding::kahan),
               (std::int64_t, seed, "seed of stochastic rounding" | at_least(0), 0));
};

/// AdEMAMix (Pagliardini et al. 2024): AdamW whose direction is the fast mean of the gradients, corrected for
/// its bias, plus alpha times a slow mean, which isn't corrected. alpha and beta3 can grow as in the paper's
/// equations, usually over all steps of the training. The names and defaults are Hugging Face's; in the
/// authors' code, alpha is 2, and t_alpha and t_beta3 are alpha_warmup and beta3_warmup.
struct AdEMAMixRule {
  using Options = AdEMAMixOptions;

  static auto moments(const Options&) {
    return std::tuple(Moment{"exp_avg_fast"}, Moment{"exp_avg_slow"}, Moment{"exp_avg_sq"});
  }

  auto numbers(const RuleStep& s) const {
    const auto n = static_cast<double>(s.step);
    const auto progress = [&](std::int64_t length) {
      return s.step < length ? n / static_cast<double>(length) : 1;
    };
    // The half-life of the slow mean grows linearly from that of the fast one.
    const double grown = progress(options.t_beta3);
    const double half_life = (1 - grown) / std::log(options.beta1) + grown / std::log(options.beta3);
    const double beta3 = grown == 1 ? options.beta3 : std::min(std::exp(1 / half_life), options.beta3);
    return std::array{s.lr / (1 - std::pow(options.beta1, n)),
                      s.lr * options.alpha * progress(options.t_alpha), beta3,
                      std::sqrt(1 - std::pow(options.beta2, n)), 1 - s.lr * s.weight_decay};
  }

  template <class V>
  void update(V& value, const V& gradient, V& fast, V& slow, V& square, const auto& numbers) const {
    const auto& [fast_rate, slow_rate, beta3, correction, keep] = numbers;
    fast = fast * options.beta1 + gradient * (1 - options.beta1);
    slow = slow * beta3 + gradient * (1 - beta3);
    square = square * options.beta2 + gradient * gradient * (1 - options.beta2);
    const V direction = fast * fast_rate + slow * slow_rate;
    value = value * keep - direction / (sqrt(square) / correction + options.eps);
  }

  Options options;
};

using AdEMAMix = RuleOptimizer<AdEMAMixRule>;
extern template class RuleOptimizer<AdEMAMixRule>;

}  // namespace etude::inline v0
