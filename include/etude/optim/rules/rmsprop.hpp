#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "etude/optim/flat_optimizer.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

struct RMSpropOptions {
  ETUDE_STRUCT(RMSpropOptions, (double, lr, "learning rate" | at_least(0), 1e-2),
               (double, alpha, "decay of the mean of squares" | at_least(0), 0.99),
               (double, eps, "added to the denominator" | at_least(0), 1e-8),
               (double, weight_decay, "L2 penalty, added to the gradient" | at_least(0), 0.0),
               (double, momentum, "momentum" | at_least(0), 0.0),
               (bool, centered, "divide by the standard deviation instead of the root mean square", false),
               (bool, fused, "one-pass kernels where available; false gives the bits of torch::optim", true));
};

/// RMSprop (Hinton 2012), equivalent to torch::optim::RMSprop.
class RMSprop : public FlatOptimizer {
 public:
  explicit RMSprop(const std::vector<ParameterGroup>& groups, const RMSpropOptions& options = {});

 protected:
  nlohmann::ordered_json own_options() const override;

  bool in_one_pass() const override;

  void update_range(const Range& range, const ParamGroup& group, std::int64_t) override;

 private:
  template <bool with_momentum, bool with_mean>
  bool update_in_one_pass(const Range& range, const ParamGroup& group) const;

  static std::vector<Moment> moments_of(const RMSpropOptions& options);

  RMSpropOptions options_;
};

}  // namespace etude::inline v0
