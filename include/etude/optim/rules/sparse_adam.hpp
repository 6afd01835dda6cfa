#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "etude/optim/flat_optimizer.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

struct SparseAdamOptions {
  ETUDE_STRUCT(SparseAdamOptions, (double, lr, "learning rate" | at_least(0), 1e-3),
               (double, beta1, "decay of the mean of the gradients" | at_least(0).below(1), 0.9),
               (double, beta2, "decay of the mean of their squares" | at_least(0).below(1), 0.999),
               (double, eps, "added to the denominator" | at_least(0), 1e-8),
               (bool, fused, "use a one-pass kernel where available", true));
};

/// Adam for sparse gradients, equivalent to torch.optim.SparseAdam: a step updates only the rows in the
/// gradient, and their moments. It refuses dense gradients and weight decay.
class SparseAdam : public FlatOptimizer {
 public:
  explicit SparseAdam(const std::vector<ParameterGroup>& groups, const SparseAdamOptions& options = {});

 protected:
  nlohmann::ordered_json own_options() const override;

  std::string sparse_fault(const ParamGroup& group) const override;

  /// Throws ArgumentError for a dense gradient.
  void update() override;

  bool in_one_pass() const override;
  void update_range(const Range& range, const ParamGroup& group, std::int64_t steps) override;

 private:
  SparseAdamOptions options_;
};

}  // namespace etude::inline v0
