#pragma once

#include <torch/types.h>

#include <vector>

#include "etude/optim/parameter_optimizer.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

struct LAMBOptions {
  ETUDE_STRUCT(LAMBOptions, (double, lr, "learning rate" | at_least(0), 1e-3),
               (double, beta1, "decay of the mean of the gradients" | at_least(0).below(1), 0.9),
               (double, beta2, "decay of the mean of their squares" | at_least(0).below(1), 0.999),
               (double, eps, "added to the denominator" | at_least(0), 1e-6),
               (double, weight_decay, "weight decay, added to Adam's update" | at_least(0), 1e-2),
               (bool, bias_correction, "correct the bias of the means", true),
               (bool, decoupled_decay, "keep the weight decay out of the update, as AdamW does", false),
               (bool, trust_clip, "limit the ratio of the norms to 1 (LAMBC)", false),
               (bool, always_adapt, "scale the updates of parameters without weight decay too", false));
};

/// LAMB (You et al. 2020, arXiv:1904.00962) for large batches, with timm's options: Adam's update, plus the
/// weight decay, is scaled to the norm of the parameter. The ratio of the norms is 1 if either is 0. By
/// default, parameters without weight decay are updated by Adam alone, as in the authors' code.
/// timm also clips the norm of all gradients to 1; here, `max_grad_norm` does that.
struct LAMBRule {
  using Options = LAMBOptions;

  NamedTensors moments(const torch::Tensor& parameter) const;

  void update(const torch::Tensor& values, const torch::Tensor& gradient, std::vector<torch::Tensor>& moments,
              const RuleStep& s) const;

  Options options;
};

using LAMB = ParameterRuleOptimizer<LAMBRule>;

}  // namespace etude::inline v0
