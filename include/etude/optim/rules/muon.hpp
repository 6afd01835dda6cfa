#pragma once

#include <torch/types.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "etude/optim/parameter_optimizer.hpp"
#include "etude/reflect/enum.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

/// How Muon adapts its learning rate to the shape of a matrix of A rows and B columns.
enum class AdjustLr {
  original,         ///< lr * sqrt(max(1, A / B))
  match_rms_adamw,  ///< lr * 0.2 * sqrt(max(A, B)), which gives updates the root mean square of AdamW's
  none
};
constexpr auto etude_enum_names(AdjustLr) {
  return std::to_array<std::string_view>({"original", "match_rms_adamw", "none"});
}

/// The dtype of Muon's matrix products.
enum class NewtonSchulzDtype {
  automatic,  ///< bfloat16 where that is faster (see has_fast_bfloat16), except for float64 parameters
  bfloat16,   ///< like torch.optim.Muon
  full        ///< float64 for float64 parameters, float32 for others
};
constexpr auto etude_enum_names(NewtonSchulzDtype) {
  return std::to_array<std::string_view>({"automatic", "bfloat16", "full"});
}

struct MuonOptions {
  ETUDE_STRUCT(MuonOptions, (double, lr, "learning rate" | at_least(0), 1e-3),
               (double, weight_decay, "decoupled weight decay" | at_least(0), 0.1),
               (double, momentum, "decay of the mean of the gradients" | at_least(0).below(1), 0.95),
               (bool, nesterov, "use Nesterov momentum", true),
               (std::vector<double>, ns_coefficients, "the three coefficients of the Newton-Schulz iteration",
                {3.4445, -4.7750, 2.0315}),
               (double, eps, "minimum norm of a matrix before the iteration" | above(0), 1e-7),
               (std::int64_t, ns_steps, "number of iterations" | at_least(1).below(100), 5),
               (AdjustLr, adjust_lr_fn, "adaptation of lr to a matrix of A rows and B columns",
                AdjustLr::original),
               (NewtonSchulzDtype, ns_dtype, "dtype of the iteration", NewtonSchulzDtype::automatic),
               (std::string, adamw_modules,
                "parameters and modules that AdamW updates, as patterns separated by spaces",
                "*embed* *wte *wpe shared *head *classifier"),
               (double, adamw_lr_factor, "AdamW's learning rate as a multiple of lr" | at_least(0), 1.0),
               (double, adamw_beta1, "beta1 of AdamW" | at_least(0).below(1), 0.9),
               (double, adamw_beta2, "beta2 of AdamW" | at_least(0).below(1), 0.999),
               (double, adamw_eps, "eps of AdamW" | at_least(0), 1e-8));
};

/// Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/), equivalent to torch.optim.Muon with
/// ns_dtype bfloat16: momentum, whose singular values a Newton-Schulz iteration makes nearly equal. AdamW
/// updates parameters of fewer than two dimensions and those that `adamw_modules` names, with the patterns of
/// `ParameterRule`: by default embeddings and output layers, as the author advises. Parameters of more
/// dimensions, such as those of convolutions, are matrices with one row for each output channel, as in the
/// author's code; torch.optim.Muon refuses them.
struct MuonRule {
  using Options = MuonOptions;

  /// Throws ArgumentError unless there are three coefficients, and for a pattern that matches nothing and
  /// isn't a default.
  static void check(const Options& options, const std::vector<ParameterGroup>& groups);

  NamedTensors moments(const std::string& name, const torch::Tensor& parameter) const;

  void update(const torch::Tensor& values, const torch::Tensor& gradient, std::vector<torch::Tensor>& moments,
              const RuleStep& s) const;

  Options options;
};

using Muon = ParameterRuleOptimizer<MuonRule>;

}  // namespace etude::inline v0
