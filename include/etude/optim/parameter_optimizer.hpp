#pragma once

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "etude/optim/optimizer.hpp"
#include "etude/optim/rule_step.hpp"
#include "etude/reflect/check_fields.hpp"
#include "etude/reflect/json.hpp"

namespace etude::inline v0 {

/// The base of optimizers that update each parameter as a whole, for example those that need its rows and
/// columns or its norm. What they keep for a parameter may have any shape. Half-precision parameters are
/// updated in float32, and the results are rounded to nearest.
class ParameterOptimizer : public Optimizer {
 protected:
  using Optimizer::Optimizer;

  /// The tensors kept for a parameter, with their initial values, on the parameter's device. Called once per
  /// parameter.
  virtual NamedTensors initial_moments(const std::string& name, const torch::Tensor& parameter) const = 0;

  /// Updates the values, which are float32 or float64 and have the same dtype and shape as the gradient. The
  /// moments are those of `initial_moments`, in this order.
  virtual void update_parameter(const std::string& name, const torch::Tensor& values,
                                const torch::Tensor& gradient, std::vector<torch::Tensor>& moments,
                                const RuleStep& step) = 0;

  void update() override;

  NamedTensors moments(std::size_t slot) override;

  void set_moments(std::size_t slot, const std::vector<torch::Tensor>& values) override;

 private:
  NamedTensors& moments_of(std::size_t slot);

  std::map<std::string, NamedTensors> moments_;
};

/// An optimizer that a rule for whole parameters describes. `Rule` is a class with
/// - `Options`, an ETUDE_STRUCT with `lr`, perhaps `weight_decay`, and further options;
/// - `Options options`, and nothing else without an initial value;
/// - `moments(parameter)`: NamedTensors, what is kept for a parameter, with its initial values, on its
///   device;
/// - `update(values, gradient, moments, RuleStep)`: see `ParameterOptimizer::update_parameter`;
///
/// and, optionally, `check(options)` or `check(options, groups)`, static, which throws ArgumentError for
/// options that don't fit together. `moments` and `update` may take the parameter's name as their first
/// argument.
template <class Rule>
class ParameterRuleOptimizer : public ParameterOptimizer {
 public:
  using Options = typename Rule::Options;

  /// Throws ArgumentError for options out of range.
  explicit ParameterRuleOptimizer(const std::vector<ParameterGroup>& groups, const Options& options = {})
      : ParameterOptimizer(groups, options.lr, detail::weight_decay_of(options)), rule_{options} {
    detail::check_fields(options);
    if constexpr (requires { Rule::check(options); }) Rule::check(options);
    if constexpr (requires { Rule::check(options, groups); }) Rule::check(options, groups);
  }

  std::string type() const override { return std::string(detail::rule_name<Rule>()); }

 protected:
  nlohmann::ordered_json group_options(std::size_t group) override {
    return with_numbers_of(group, to_json_value(rule_.options));
  }

  NamedTensors initial_moments(const std::string& name, const torch::Tensor& parameter) const override {
    if constexpr (requires { rule_.moments(name, parameter); })
      return rule_.moments(name, parameter);
    else
      return rule_.moments(parameter);
  }

  void update_parameter(const std::string& name, const torch::Tensor& values, const torch::Tensor& gradient,
                        std::vector<torch::Tensor>& moments, const RuleStep& step) override {
    const auto update = [&](auto& rule) {
      if constexpr (requires { rule.update(name, values, gradient, moments, step); })
        rule.update(name, values, gradient, moments, step);
      else
        rule.update(values, gradient, moments, step);
    };
    if (!step.momentum) return update(rule_);
    Rule rule{detail::with_momentum(rule_.options, step.momentum)};
    update(rule);
  }

 private:
  Rule rule_;
};

namespace detail {
/// The type in which a parameter is updated: float64 for float64, otherwise float32.
inline at::ScalarType update_type(const torch::Tensor& parameter) {
  return parameter.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}
}  // namespace detail

}  // namespace etude::inline v0
