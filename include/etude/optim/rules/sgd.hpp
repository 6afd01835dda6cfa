#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "etude/optim/flat_optimizer.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

struct SGDOptions {
  ETUDE_STRUCT(SGDOptions, (double, lr, "learning rate" | at_least(0), 1e-3),
               (double, momentum, "momentum" | at_least(0), 0.0),
               (double, dampening, "dampening of the gradient in the momentum", 0.0),
               (double, weight_decay, "L2 penalty, added to the gradient" | at_least(0), 0.0),
               (bool, nesterov, "use Nesterov momentum", false),
               (bool, fused, "one-pass kernels where available; false gives the bits of torch::optim", true),
               (Rounding, rounding, "rounding of bfloat16 parameters: kahan adds 2 bytes each",
                Rounding::kahan),
               (std::int64_t, seed, "seed of stochastic rounding" | at_least(0), 0));
};

/// Stochastic gradient descent, equivalent to torch::optim::SGD (the momentum doesn't include the learning
/// rate). Takes sparse gradients if momentum and weight decay are 0.
class SGD : public FlatOptimizer {
 public:
  /// Throws ArgumentError for options out of range, and for nesterov without momentum or with dampening.
  explicit SGD(const std::vector<ParameterGroup>& groups, const SGDOptions& options = {});

 protected:
  nlohmann::ordered_json own_options() const override;

  std::string sparse_fault(const ParamGroup& group) const override;

  bool in_one_pass() const override;
  bool has_libtorch_kernel(const torch::Tensor& values) const override;
  bool has_capturable_kernel(const torch::Tensor& values) const override;
  void update_by_libtorch(const Lists& lists, const ParamGroup& group, std::int64_t steps) override;

  void update_range(const Range& range, const ParamGroup& group, std::int64_t steps) override;

 private:
  static std::vector<Moment> moments_of(const SGDOptions& options);

  bool update_in_one_pass(const Range& range, const ParamGroup& group, std::int64_t steps) const;

  SGDOptions options_;
};

}  // namespace etude::inline v0
