#include "etude/optim/adafactor.hpp"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/reflect/check_fields.hpp"
#include "etude/reflect/json.hpp"

namespace etude::inline v0 {

namespace detail {

namespace {

torch::Tensor root_mean_square(const torch::Tensor& tensor) { return tensor.square().mean().sqrt(); }

}  // namespace

}  // namespace detail

Adafactor::Adafactor(const std::vector<ParameterGroup>& groups, const AdafactorOptions& options)
    : Optimizer(groups, options.lr, options.weight_decay), options_(options) {
  detail::check_fields(options);
  if (options.warmup_init && !options.relative_step) {
    throw ArgumentError("warmup_init is true: must have relative_step");
  }
}

nlohmann::ordered_json Adafactor::own_options() const { return to_json_value(options_); }

void Adafactor::update() {
  for (const FlatRange& range : begin_step()) {
    for (std::size_t i = range.first; i < range.last; ++i) {
      if (flat_.layout()->slots[i].size > 0) update_parameter(i, groups_[range.group], range.steps);
    }
  }
}

NamedTensors Adafactor::moments(std::size_t slot) {
  Moments& of = moments_of(slot);
  NamedTensors result;
  if (of.mean.defined()) result.emplace_back("exp_avg", of.mean);
  if (of.columns.defined()) {
    result.emplace_back("exp_avg_sq_row", of.square);
    result.emplace_back("exp_avg_sq_col", of.columns);
  } else {
    result.emplace_back("exp_avg_sq", of.square);
  }
  return result;
}

void Adafactor::reset_moments(std::size_t slot) { moments_.erase(flat_.layout()->slots[slot].name); }

Adafactor::Moments& Adafactor::moments_of(std::size_t slot) {
  const torch::Tensor& parameter = flat_.parameter(slot);
  const auto options = torch::TensorOptions()
                           .device(parameter.device())
                           .dtype(parameter.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  Moments& of = moments_[flat_.layout()->slots[slot].name];
  const auto ready = [&](torch::Tensor& tensor, at::IntArrayRef sizes) {
    tensor = tensor.defined() ? tensor.to(options) : at::zeros(sizes, options);
  };
  const auto sizes = parameter.sizes();
  if (sizes.size() >= 2) {
    std::vector<std::int64_t> column_sizes = sizes.vec();
    column_sizes.erase(column_sizes.end() - 2);
    ready(of.square, sizes.slice(0, sizes.size() - 1));
    ready(of.columns, column_sizes);
  } else {
    ready(of.square, sizes);
  }
  if (options_.beta1) ready(of.mean, sizes);
  return of;
}

void Adafactor::update_parameter(std::size_t slot, const ParamGroup& group, std::int64_t steps) {
  Moments& of = moments_of(slot);
  const torch::Tensor parameter = flat_.parameter(slot).detach();
  const torch::Tensor gradient = flat_.parameter(slot).grad().to(of.square.scalar_type());
  const torch::Tensor values = parameter.to(of.square.scalar_type());
  const auto n = static_cast<double>(steps);

  torch::Tensor lr = at::full({}, group.lr, of.square.options());
  if (options_.relative_step) {
    lr.fill_(std::min(options_.warmup_init ? 1e-6 * n : 1e-2, 1 / std::sqrt(n)));
  }
  if (options_.scale_parameter) lr.mul_(detail::root_mean_square(values).clamp_min(options_.eps2));

  const double decay = 1 - std::pow(n, options_.decay_rate);
  const torch::Tensor squares = gradient.square().add_(options_.eps1);
  torch::Tensor step;
  if (of.columns.defined()) {
    // The mean squares are estimated as row mean * column mean / mean of the row means (the paper's algorithm
    // 4).
    of.square.mul_(decay).add_(squares.mean(-1), 1 - decay);
    of.columns.mul_(decay).add_(squares.mean(-2), 1 - decay);
    const torch::Tensor rows = of.square.div(of.square.mean(-1, /*keepdim=*/true)).rsqrt_();
    step = gradient.mul(rows.unsqueeze(-1)).mul_(of.columns.rsqrt().unsqueeze(-2));
  } else {
    of.square.mul_(decay).add_(squares, 1 - decay);
    step = of.square.rsqrt().mul_(gradient);
  }
  step.div_(detail::root_mean_square(step).div_(options_.clip_threshold).clamp_min_(1.0)).mul_(lr);
  if (of.mean.defined()) {
    step = of.mean.mul_(*options_.beta1).add_(step, 1 - *options_.beta1);
  }
  if (group.weight_decay != 0) step = values.mul(lr * group.weight_decay).add_(step);
  parameter.copy_(values - step);
}

}  // namespace etude::inline v0
