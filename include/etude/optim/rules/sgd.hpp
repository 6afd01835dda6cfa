#pragma once

#include <torch/types.h>
#include <array>
#include <cstdint>
#include <string>
#include <tuple>

#include "etude/base/error.hpp"
#include "etude/libtorch/optim.hpp"
#include "etude/optim/rule_optimizer.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

struct SGDOptions {
  ETUDE_STRUCT(SGDOptions, (double, lr, "learning rate" | at_least(0), 1e-3),
               (double, momentum, "momentum" | at_least(0), 0.0),
               (double, dampening, "dampening of the gradient in the momentum", 0.0),
               (double, weight_decay, "L2 penalty, added to the gradient" | at_least(0), 0.0),
               (bool, nesterov, "use Nesterov momentum", false),
               (bool, fused, "one-pass kernels where available; false matches torch::optim bit for bit",
                true),
               (Rounding, rounding, "rounding of bfloat16 parameters: kahan adds 2 bytes each",
                Rounding::kahan),
               (std::int64_t, seed, "seed of stochastic rounding" | at_least(0), 0));
};

/// Stochastic gradient descent, equivalent to torch::optim::SGD (the momentum doesn't include the learning
/// rate). Takes sparse gradients if momentum and weight decay are 0.
struct SGDRule {
  using Options = SGDOptions;

  /// Throws ArgumentError for nesterov without momentum or with dampening.
  static void check(const Options& o) {
    if (o.nesterov && (o.momentum == 0 || o.dampening != 0))
      throw ArgumentError("nesterov is true: momentum must be above 0 and dampening 0");
  }

  static auto moments(const Options& o) {
    return std::tuple(OptionalMoment{"momentum_buffer", o.momentum != 0});
  }

  std::string sparse_fault(const ParamGroup& group) const {
    return options.momentum != 0 ? detail::must_be_zero("momentum", options.momentum)
                                 : detail::must_be_zero("weight_decay", group.weight_decay);
  }

  auto numbers(const RuleStep& s) const {
    // The first gradient initializes the momentum.
    const bool is_first = s.step == 1;
    return std::array{s.lr, s.weight_decay, is_first ? 0 : options.momentum,
                      is_first ? 1 : 1 - options.dampening};
  }

  template <class V>
  void update(V& value, const V& raw, auto&& momentum, const auto& numbers) const {
    const auto& [lr, penalty, keep, add] = numbers;
    const V gradient = raw + value * penalty;
    if constexpr (is_kept<decltype(momentum)>) {
      momentum = momentum * keep + gradient * add;
      const double ahead = options.nesterov ? options.momentum : 1, direct = options.nesterov ? 1 : 0;
      value = value - (gradient * direct + momentum * ahead) * lr;
    } else {
      value = value - gradient * lr;
    }
  }

  static bool has_libtorch_kernel(const torch::Tensor& values) {
    return libtorch::has_fused_optimizers(values);
  }
  static bool has_capturable_kernel(const torch::Tensor& values) {
    return libtorch::has_capturable_kernels(values);
  }
  void update_by_libtorch(const auto& lists, const RuleStep& s, double gradient_scale) const {
    libtorch::fused_sgd(
        lists.values, lists.gradients, lists.moments,
        {s.lr, options.momentum, options.dampening, s.weight_decay, options.nesterov, s.step == 1},
        gradient_scale, lists.rate);
  }

  Options options;
};

using SGD = RuleOptimizer<SGDRule>;
extern template class RuleOptimizer<SGDRule>;

}  // namespace etude::inline v0
