#include "etude/optim/adagrad.hpp"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "etude/libtorch/optim.hpp"
#include "etude/optim/one_pass.hpp"
#include "etude/reflect/check_fields.hpp"
#include "etude/reflect/json.hpp"

namespace etude::inline v0 {

Adagrad::Adagrad(const std::vector<ParameterGroup>& groups, const AdagradOptions& options)
    : FlatOptimizer(groups, options.lr, options.weight_decay, {{"sum", options.initial_accumulator_value}}),
      options_(options) {
  detail::check_fields(options);
}

nlohmann::ordered_json Adagrad::own_options() const { return to_json_value(options_); }

std::string Adagrad::sparse_fault(const ParamGroup& group) const {
  return detail::must_be_zero("weight_decay", group.weight_decay);
}

bool Adagrad::in_one_pass() const { return options_.fused; }

bool Adagrad::has_libtorch_kernel(const torch::Tensor& values) const {
  return options_.fused && libtorch::has_fused_adagrad(values);
}

void Adagrad::update_by_libtorch(const Lists& lists, const ParamGroup& group, std::int64_t) {
  libtorch::fused_adagrad(lists.values, lists.gradients, lists.moments, lists.steps,
                          {group.lr, options_.lr_decay, options_.eps, group.weight_decay}, gradient_scale());
}

void Adagrad::update_range(const Range& range, const ParamGroup& group, std::int64_t steps) {
  const double lr = group.lr / (1 + static_cast<double>(steps - 1) * options_.lr_decay);
  if (options_.fused) {
    const auto update = [lr, scale = gradient_scale(), penalty = group.weight_decay, eps = options_.eps](
                            auto& value, auto gradient, auto& sum) {
      gradient = gradient * scale + value * penalty;
      sum = sum + gradient * gradient;
      value = value - gradient / (sqrt(sum) + eps) * lr;
    };
    if (detail::one_pass<1>(range.values, range.gradients, range.moments, update)) return;
  }
  torch::Tensor gradients = scaled(range.gradients);
  if (group.weight_decay != 0) gradients = gradients.add(range.values, group.weight_decay);
  const torch::Tensor& sum = range.moments[0];
  sum.addcmul_(gradients, gradients, 1);
  range.values.addcdiv_(gradients, sum.sqrt().add_(options_.eps), -lr);
}

}  // namespace etude::inline v0
