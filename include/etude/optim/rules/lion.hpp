#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "etude/optim/flat_optimizer.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

struct LionOptions {
  ETUDE_STRUCT(LionOptions, (double, lr, "learning rate" | at_least(0), 1e-4),
               (double, beta1, "weight of the momentum in the update" | at_least(0).below(1), 0.9),
               (double, beta2, "decay of the momentum" | at_least(0).below(1), 0.99),
               (double, weight_decay, "decoupled weight decay" | at_least(0), 0.0),
               (Rounding, rounding, "rounding of bfloat16 parameters: kahan adds 2 bytes each",
                Rounding::kahan),
               (std::int64_t, seed, "seed of stochastic rounding" | at_least(0), 0));
};

/// Lion (Chen et al. 2023): moves every element by lr, in the direction of the sign of beta1 * momentum + (1
/// - beta1) * gradient.
class Lion : public FlatOptimizer {
 public:
  explicit Lion(const std::vector<ParameterGroup>& groups, const LionOptions& options = {});

 protected:
  nlohmann::ordered_json own_options() const override;

  bool in_one_pass() const override;

  void update_range(const Range& range, const ParamGroup& group, std::int64_t steps) override;

 private:
  LionOptions options_;
};

}  // namespace etude::inline v0
