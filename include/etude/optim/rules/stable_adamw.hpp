#pragma once

#include <torch/types.h>

#include <vector>

#include "etude/optim/parameter_optimizer.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

struct StableAdamWOptions {
  ETUDE_STRUCT(StableAdamWOptions, (double, lr, "learning rate" | at_least(0), 1e-3),
               (double, beta1, "decay of the mean of the gradients" | at_least(0).below(1), 0.9),
               (double, beta2, "decay of the mean of their squares" | at_least(0).below(1), 0.99),
               (double, eps, "added to the denominator" | at_least(0), 1e-6),
               (double, weight_decay, "decoupled weight decay" | at_least(0), 1e-2));
};

/// StableAdamW (Wortsman et al. 2023, arXiv:2304.13013, algorithm 2), with the defaults of optimi, which
/// Hugging Face's Trainer uses: AdamW, whose learning rate for a parameter is divided by the root mean square
/// of gradient / sqrt(max(mean of squares, eps^2)) if that is above 1. So a gradient that is much larger
/// than those before can't cause a large step.
struct StableAdamWRule {
  using Options = StableAdamWOptions;

  NamedTensors moments(const torch::Tensor& parameter) const;

  void update(const torch::Tensor& values, const torch::Tensor& gradient, std::vector<torch::Tensor>& moments,
              const RuleStep& s) const;

  Options options;
};

using StableAdamW = ParameterRuleOptimizer<StableAdamWRule>;

}  // namespace etude::inline v0
