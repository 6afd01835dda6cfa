#include "etude/optim/rules/galore_adamw.hpp"

#include <ATen/ops/linalg_svd.h>
#include <ATen/ops/zeros.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "etude/optim/decompose.hpp"
#include "etude/optim/name_patterns.hpp"
#include "etude/optim/rules/adam_direction.hpp"

namespace etude::inline v0 {

namespace detail {

namespace {

struct Projection {
  bool from_left, from_right;
};

Projection projection_of(ProjType type, const torch::Tensor& matrix) {
  const bool is_tall = matrix.size(0) >= matrix.size(1);
  switch (type) {
    case ProjType::std:
      return {.from_left = !is_tall, .from_right = is_tall};
    case ProjType::reverse_std:
      return {.from_left = is_tall, .from_right = !is_tall};
    case ProjType::right:
      return {.from_left = false, .from_right = true};
    case ProjType::left:
      return {.from_left = true, .from_right = false};
    case ProjType::full:
      break;
  }
  return {.from_left = true, .from_right = true};
}

}  // namespace

}  // namespace detail

void GaLoreAdamWRule::check(const Options& options, const std::vector<ParameterGroup>& groups) {
  detail::check_name_patterns("target_modules", options.target_modules, groups);
}

NamedTensors GaLoreAdamWRule::moments(const std::string& name, const torch::Tensor& parameter) const {
  const auto rank = options.rank;
  if (parameter.dim() != 2 || std::min(parameter.size(0), parameter.size(1)) < rank ||
      !detail::any_pattern_names(options.target_modules, name))
    return detail::zeros_for(parameter, {"exp_avg", "exp_avg_sq"});
  const auto zeros = [&](std::int64_t rows, std::int64_t columns) {
    return at::zeros({rows, columns}, parameter.options().dtype(detail::update_type(parameter)));
  };
  const auto [from_left, from_right] = detail::projection_of(options.proj_type, parameter);
  const auto rows = parameter.size(0), columns = parameter.size(1);
  const auto kept_rows = from_left ? rank : rows, kept_columns = from_right ? rank : columns;
  NamedTensors result{{"exp_avg", zeros(kept_rows, kept_columns)},
                      {"exp_avg_sq", zeros(kept_rows, kept_columns)}};
  if (from_left) result.emplace_back("projector_left", zeros(rows, rank));
  if (from_right) result.emplace_back("projector_right", zeros(rank, columns));
  return result;
}

void GaLoreAdamWRule::update(const std::string& name, const torch::Tensor& values,
                             const torch::Tensor& gradient, std::vector<torch::Tensor>& moments,
                             const RuleStep& s) const {
  const auto direction_of = [&](const torch::Tensor& reduced) {
    return detail::adam_direction({.beta1 = options.beta1,
                                   .beta2 = options.beta2,
                                   .eps = options.eps,
                                   .correct_bias = options.correct_bias,
                                   .eps_before_correction = true},
                                  reduced, moments[0], moments[1], s.step);
  };
  if (moments.size() == 2) {
    values.sub_(direction_of(gradient), s.lr);
  } else {
    const auto [from_left, from_right] = detail::projection_of(options.proj_type, values);
    const torch::Tensor left = from_left ? moments[2] : torch::Tensor(),
                        right = from_right ? moments.back() : torch::Tensor();
    if ((s.step - 1) % options.update_proj_gap == 0) {
      const auto [u, _, vh] = detail::decomposed(
          name, gradient, [](const torch::Tensor& matrix) { return at::linalg_svd(matrix, false); });
      if (from_left) left.copy_(u.slice(1, 0, options.rank));
      if (from_right) right.copy_(vh.slice(0, 0, options.rank));
    }
    torch::Tensor reduced = from_left ? left.t().mm(gradient) : gradient;
    if (from_right) reduced = reduced.mm(right.t());
    const torch::Tensor direction = direction_of(reduced);
    const double rate = -s.lr * options.scale;
    if (!from_right)
      values.addmm_(left, direction, 1, rate);
    else
      values.addmm_(from_left ? left.mm(direction) : direction, right, 1, rate);
  }
  if (s.weight_decay != 0) values.sub_(values, s.lr * s.weight_decay);
}

}  // namespace etude::inline v0
