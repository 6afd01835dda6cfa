#pragma once

#include <torch/types.h>

#include <vector>

#include "etude/optim/parameter_optimizer.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

struct LARSOptions {
  ETUDE_STRUCT(LARSOptions, (double, lr, "learning rate" | at_least(0), 1.0),
               (double, momentum, "momentum" | at_least(0), 0.0),
               (double, dampening, "dampening of the gradient in the momentum", 0.0),
               (double, weight_decay, "L2 penalty, added to the gradient" | at_least(0), 0.0),
               (bool, nesterov, "use Nesterov momentum", false),
               (double, trust_coeff, "factor of the ratio of the norms" | at_least(0), 0.001),
               (double, eps, "added to the denominator of the ratio" | at_least(0), 1e-8),
               (bool, trust_clip, "limit the scaled learning rate to lr (LARC)", false),
               (bool, always_adapt, "scale the gradients of parameters without weight decay too", false));
};

/// LARS (You et al. 2017, arXiv:1708.03888) for large batches, with timm's options: SGD, whose gradients,
/// weight decay included, are multiplied by trust_coeff * |parameter| / (|gradient| + weight_decay *
/// |parameter| + eps), or by 1 if either norm is 0. By default, parameters without weight decay are updated
/// by SGD alone, so biases and norms keep the rate lr.
struct LARSRule {
  using Options = LARSOptions;

  /// Throws ArgumentError for nesterov without momentum or with dampening.
  static void check(const Options& options);

  NamedTensors moments(const torch::Tensor& parameter) const;

  void update(const torch::Tensor& values, const torch::Tensor& gradient, std::vector<torch::Tensor>& moments,
              const RuleStep& s) const;

  Options options;
};

using LARS = ParameterRuleOptimizer<LARSRule>;

}  // namespace etude::inline v0
