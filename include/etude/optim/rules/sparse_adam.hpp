#pragma once

#include <array>
#include <cmath>
#include <string>
#include <tuple>

#include "etude/optim/rule_optimizer.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

struct SparseAdamOptions {
  ETUDE_STRUCT(SparseAdamOptions, (double, lr, "learning rate" | at_least(0), 1e-3),
               (double, beta1, "decay of the mean of the gradients" | at_least(0).below(1), 0.9),
               (double, beta2, "decay of the mean of their squares" | at_least(0).below(1), 0.999),
               (double, eps, "added to the denominator" | at_least(0), 1e-8),
               (bool, fused, "use a one-pass kernel where available", true));
};

struct SparseAdamRule {
  using Options = SparseAdamOptions;

  static auto moments(const Options&) { return std::tuple(Moment{"exp_avg"}, Moment{"exp_avg_sq"}); }

  std::string sparse_fault(const ParamGroup& group) const {
    return detail::must_be_zero("weight_decay", group.weight_decay);
  }

  auto numbers(const RuleStep& s) const {
    const auto n = static_cast<double>(s.step);
    return std::array{s.lr * std::sqrt(1 - std::pow(options.beta2, n)) / (1 - std::pow(options.beta1, n))};
  }

  template <class V>
  void update(V& value, const V& gradient, V& mean, V& square, const auto& numbers) const {
    const auto& [rate] = numbers;
    mean = mean + (gradient - mean) * (1 - options.beta1);
    square = square + (gradient * gradient - square) * (1 - options.beta2);
    value = value - mean / (sqrt(square) + options.eps) * rate;
  }

  Options options;
};
extern template class RuleOptimizer<SparseAdamRule>;

/// Adam for sparse gradients, equivalent to torch.optim.SparseAdam: a step updates only the rows in the
/// gradient, and their moments. It refuses dense gradients and weight decay.
class SparseAdam : public RuleOptimizer<SparseAdamRule> {
 public:
  using RuleOptimizer::RuleOptimizer;

  OptimizerTraits traits() const override { return {.takes_sparse_gradients = true}; }

 protected:
  /// Throws ArgumentError for a dense gradient.
  void update() override;
};

}  // namespace etude::inline v0
