#include "etude/optim/rules/adafactor.hpp"

#include <ATen/ops/full.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/zeros.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "etude/base/error.hpp"

namespace etude::inline v0 {

namespace detail {

namespace {

/// Without a temporary copy, unlike tensor.square().mean().sqrt().
torch::Tensor root_mean_square(const torch::Tensor& tensor) {
  return at::linalg_vector_norm(tensor, 2).div_(std::sqrt(static_cast<double>(tensor.numel())));
}

}  // namespace

}  // namespace detail

void AdafactorRule::check(const Options& options) {
  if (options.warmup_init && !options.relative_step)
    throw ArgumentError("warmup_init is true: must have relative_step");
}

NamedTensors AdafactorRule::moments(const torch::Tensor& parameter) const {
  const auto zeros = [&](at::IntArrayRef sizes) {
    return at::zeros(sizes, parameter.options().dtype(detail::update_type(parameter)));
  };
  const auto sizes = parameter.sizes();
  NamedTensors result;
  if (options.beta1) result.emplace_back("exp_avg", zeros(sizes));
  if (sizes.size() < 2) {
    result.emplace_back("exp_avg_sq", zeros(sizes));
    return result;
  }
  std::vector<std::int64_t> columns = sizes.vec();
  columns.erase(columns.end() - 2);
  result.emplace_back("exp_avg_sq_row", zeros(sizes.slice(0, sizes.size() - 1)));
  result.emplace_back("exp_avg_sq_col", zeros(columns));
  return result;
}

void AdafactorRule::update(const torch::Tensor& values, const torch::Tensor& gradient,
                           std::vector<torch::Tensor>& moments, const RuleStep& s) const {
  const auto n = static_cast<double>(s.step);
  torch::Tensor lr = at::full({}, s.lr, values.options());
  if (options.relative_step) {
    lr.fill_(std::min(options.warmup_init ? 1e-6 * n : 1e-2, 1 / std::sqrt(n)));
  }
  if (options.scale_parameter) lr.mul_(detail::root_mean_square(values).clamp_min(options.eps2));

  const double decay = 1 - std::pow(n, options.decay_rate);
  // It first holds the squares: for a large tensor, fresh memory takes longer than the arithmetic.
  torch::Tensor step = gradient.square().add_(options.eps1);
  if (values.dim() >= 2) {
    // The mean squares are estimated as row mean * column mean / mean of the row means (the paper's algorithm
    // 4).
    const torch::Tensor &row = moments.end()[-2], &column = moments.end()[-1];
    row.mul_(decay).add_(step.mean(-1), 1 - decay);
    column.mul_(decay).add_(step.mean(-2), 1 - decay);
    const torch::Tensor rows = row.div(row.mean(-1, /*keepdim=*/true)).rsqrt_();
    at::mul_out(step, gradient, rows.unsqueeze(-1)).mul_(column.rsqrt().unsqueeze(-2));
  } else {
    const torch::Tensor& square = moments.back();
    square.mul_(decay).add_(step, 1 - decay);
    at::rsqrt_out(step, square).mul_(gradient);
  }
  step.div_(detail::root_mean_square(step).div_(options.clip_threshold).clamp_min_(1.0)).mul_(lr);
  if (options.beta1) step = moments[0].mul_(*options.beta1).add_(step, 1 - *options.beta1);
  if (s.weight_decay != 0) values.addcmul_(values, lr, -s.weight_decay);
  values.sub_(step);
}

}  // namespace etude::inline v0
