#pragma once

#include <torch/types.h>

#include <optional>
#include <vector>

#include "etude/optim/parameter_optimizer.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

struct AdafactorOptions {
  ETUDE_STRUCT(AdafactorOptions, (double, lr, "learning rate; unused with relative_step" | at_least(0), 1e-3),
               (double, eps1, "added to the squares of the gradients" | at_least(0), 1e-30),
               (double, eps2, "minimum scale of a parameter, for scale_parameter" | at_least(0), 1e-3),
               (double, clip_threshold, "maximum root mean square of a parameter's update" | at_least(0),
                1.0),
               (double, decay_rate, "the decay of the mean of squares is 1 - step^decay_rate", -0.8),
               (std::optional<double>, beta1,
                "decay of the mean of the updates; unset disables it" | at_least(0).below(1)),
               (double, weight_decay, "decoupled weight decay" | at_least(0), 0.0),
               (bool, scale_parameter, "scale the learning rate by the parameter's root mean square", false),
               (bool, relative_step, "use min(1e-2, 1 / sqrt(step)) as the learning rate", false),
               (bool, warmup_init, "with relative_step: use 1e-6 * step instead of 1e-2", false));
};

/// Adafactor (Shazeer and Stern 2018) as in fairseq and Hugging Face: for tensors of two or more dimensions,
/// it keeps only the mean squares of rows and columns. Half-precision parameters are computed in float32,
/// which is also the dtype of the state. The defaults match Hugging Face's Trainer.
struct AdafactorRule {
  using Options = AdafactorOptions;

  static void check(const Options& options);

  NamedTensors moments(const torch::Tensor& parameter) const;

  void update(const torch::Tensor& values, const torch::Tensor& gradient, std::vector<torch::Tensor>& moments,
              const RuleStep& s) const;

  Options options;
};

using Adafactor = ParameterRuleOptimizer<AdafactorRule>;

}  // namespace etude::inline v0
