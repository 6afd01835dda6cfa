#pragma once

#include <torch/types.h>
#include <array>
#include <string>
#include <tuple>

#include "etude/libtorch/optim.hpp"
#include "etude/optim/rule_optimizer.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

struct AdagradOptions {
  ETUDE_STRUCT(AdagradOptions, (double, lr, "learning rate" | at_least(0), 1e-2),
               (double, lr_decay, "the learning rate is divided by 1 + (step - 1) * lr_decay" | at_least(0),
                0.0),
               (double, weight_decay, "L2 penalty, added to the gradient" | at_least(0), 0.0),
               (double, initial_accumulator_value, "initial sum of squares" | at_least(0), 0.0),
               (double, eps, "added to the denominator" | at_least(0), 1e-10),
               (bool, fused, "one-pass kernels where available; false matches torch::optim bit for bit",
                true));
};

/// Adagrad (Duchi et al. 2011), equivalent to torch::optim::Adagrad. Takes sparse gradients if weight decay
/// is 0.
struct AdagradRule {
  using Options = AdagradOptions;

  static auto moments(const Options& o) { return std::tuple(Moment{"sum", o.initial_accumulator_value}); }

  std::string sparse_fault(const ParamGroup& group) const {
    return detail::must_be_zero("weight_decay", group.weight_decay);
  }

  auto numbers(const RuleStep& s) const {
    return std::array{s.lr / (1 + static_cast<double>(s.step - 1) * options.lr_decay), s.weight_decay};
  }

  template <class V>
  void update(V& value, const V& raw, V& sum, const auto& numbers) const {
    const auto& [lr, penalty] = numbers;
    const V gradient = raw + value * penalty;
    sum = sum + gradient * gradient;
    value = value - gradient / (sqrt(sum) + options.eps) * lr;
  }

  static bool has_libtorch_kernel(const torch::Tensor& values) { return libtorch::has_fused_adagrad(values); }
  void update_by_libtorch(const auto& lists, const RuleStep& s, double gradient_scale) const {
    libtorch::fused_adagrad(lists.values, lists.gradients, lists.moments, lists.steps,
                            {s.lr, options.lr_decay, options.eps, s.weight_decay}, gradient_scale);
  }

  Options options;
};

using Adagrad = RuleOptimizer<AdagradRule>;
extern template class RuleOptimizer<AdagradRule>;

}  // namespace etude::inline v0
