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

/// From which sides GaLore projects a gradient: `left` leaves `rank` rows, `right` leaves `rank` columns.
enum class ProjType {
  std,          ///< reduces the shorter side: right if there are at least as many rows as columns
  reverse_std,  ///< reduces the longer side
  right,
  left,
  full  ///< both
};
constexpr auto etude_enum_names(ProjType) {
  return std::to_array<std::string_view>({"std", "reverse_std", "right", "left", "full"});
}

struct GaLoreAdamWOptions {
  ETUDE_STRUCT(GaLoreAdamWOptions, (double, lr, "learning rate" | at_least(0), 1e-3),
               (double, beta1, "decay of the mean of the gradients" | at_least(0).below(1), 0.9),
               (double, beta2, "decay of the mean of their squares" | at_least(0).below(1), 0.999),
               (double, eps, "added to the denominator" | at_least(0), 1e-6),
               (double, weight_decay, "decoupled weight decay" | at_least(0), 0.0),
               (bool, correct_bias, "correct the bias of the means", true),
               (std::int64_t, rank, "rows or columns of a projected gradient" | at_least(1), 128),
               (std::int64_t, update_proj_gap, "steps between new projections" | at_least(1), 200),
               (double, scale, "factor of the projected updates" | at_least(0), 0.25),
               (ProjType, proj_type, "from which sides gradients are projected", ProjType::std),
               (std::string, target_modules,
                "parameters and modules that are projected, as patterns separated by spaces", "*"));
};

/// GaLore (Zhao et al. 2024, arXiv:2403.03507), equivalent to galore_torch.GaLoreAdamW, which Hugging Face's
/// Trainer uses: AdamW on gradients that are projected onto their leading singular vectors, so that moments
/// take less memory. `target_modules` has the patterns of `ParameterRule`; by default, it includes
/// embeddings, which Hugging Face's Trainer never projects. Other parameters, and those that aren't matrices
/// of at least `rank` rows and columns, are updated by AdamW. As in Hugging Face's former AdamW, eps is added
/// before the bias correction, and the weight decay comes last.
struct GaLoreAdamWRule {
  using Options = GaLoreAdamWOptions;

  /// Throws ArgumentError for a pattern that matches nothing.
  static void check(const Options& options, const std::vector<ParameterGroup>& groups);

  NamedTensors moments(const std::string& name, const torch::Tensor& parameter) const;

  /// Throws Error if the gradient of a projected parameter isn't finite.
  void update(const std::string& name, const torch::Tensor& values, const torch::Tensor& gradient,
              std::vector<torch::Tensor>& moments, const RuleStep& s) const;

  Options options;
};

using GaLoreAdamW = ParameterRuleOptimizer<GaLoreAdamWRule>;

}  // namespace etude::inline v0
