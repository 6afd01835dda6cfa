#pragma once

#include <torch/types.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>
#include <vector>

#include "etude/optim/elements.hpp"
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
        constexpr std::size_t count = number_kept<kept>;
        const auto update = [rule, numbers](auto& value, const auto& of, auto&... each) {
          update_by_rule<kept>(rule, value, of, numbers, each...);
        };
        if (has_one_order && one_pass<count>(values, gradient, moments, update)) return;
        [&]<std::size_t... M>(std::index_sequence<M...>) {
          Elements value = Elements::stored_in(values);
          std::array<Elements, count> each{Elements::stored_in(moments[M])...};
          update(value, Elements(gradient), each[M]...);
          (each[M].store(), ...);
          value.store();
        }
        (std::make_index_sequence<count>());
      });
}

}  // namespace etude::inline v0::detail
