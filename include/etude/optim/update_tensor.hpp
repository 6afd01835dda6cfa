#pragma once

#include <torch/types.h>

#include <algorithm>
#include <vector>

#include "etude/optim/one_pass.hpp"
#include "etude/optim/rule_optimizer.hpp"
#include "etude/optim/rule_step.hpp"

namespace etude::inline v0::detail {

/// Updates a float32 or float64 tensor by the rule of an element-wise optimizer. The gradient and the moments
/// have its shape and dtype.
template <class Rule>
void update_tensor(const Rule& rule, const torch::Tensor& values, const torch::Tensor& gradient,
                   const std::vector<torch::Tensor>& moments, const RuleStep& step) {
  const auto numbers = rule.numbers(step);
  const auto has_order = [&](const torch::Tensor& tensor) { return tensor.strides() == values.strides(); };
  const bool has_one_order = values.is_non_overlapping_and_dense() && has_order(gradient) &&
                             std::all_of(moments.begin(), moments.end(), has_order);
  with_kept(
      Rule::moments(rule.options), [&]<auto kept>(Kept<kept>) {
        if (!has_one_order ||
            !one_pass<number_kept<kept>>(values, gradient, moments, kernel_of<kept>(rule, numbers, 1)))
          update_by_operators<kept>(rule, values, gradient, moments, numbers);
      });
}

}  // namespace etude::inline v0::detail
