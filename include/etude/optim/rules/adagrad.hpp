#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "etude/optim/flat_optimizer.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

struct AdagradOptions {
  ETUDE_STRUCT(AdagradOptions, (double, lr, "learning rate" | at_least(0), 1e-2),
               (double, lr_decay, "the learning rate is divided by 1 + (step - 1) * lr_decay" | at_least(0),
                0.0),
               (double, weight_decay, "L2 penalty, added to the gradient" | at_least(0), 0.0),
               (double, initial_accumulator_value, "initial sum of squares" | at_least(0), 0.0),
               (double, eps, "added to the denominator" | at_least(0), 1e-10),
               (bool, fused, "one-pass kernels where available; false gives the bits of torch::optim", true));
};

/// Adagrad (Duchi et al. 2011), equivalent to torch::optim::Adagrad. Takes sparse gradients if weight decay
/// is 0.
class Adagrad : public FlatOptimizer {
 public:
  explicit Adagrad(const std::vector<ParameterGroup>& groups, const AdagradOptions& options = {});

 protected:
  nlohmann::ordered_json own_options() const override;

  std::string sparse_fault(const ParamGroup& group) const override;

  bool in_one_pass() const override;
  bool has_libtorch_kernel(const torch::Tensor& values) const override;
  void update_by_libtorch(const Lists& lists, const ParamGroup& group, std::int64_t) override;

  void update_range(const Range& range, const ParamGroup& group, std::int64_t steps) override;

 private:
  AdagradOptions options_;
};

}  // namespace etude::inline v0
