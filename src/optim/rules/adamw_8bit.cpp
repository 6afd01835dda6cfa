#include "etude/optim/rules/adamw_8bit.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "etude/optim/block_quantization.hpp"
#include "etude/optim/cpu_kernels.hpp"
#include "etude/optim/one_pass.hpp"
#include "etude/reflect/check_fields.hpp"
#include "etude/reflect/json.hpp"

namespace etude::inline v0 {

AdamW8bit::AdamW8bit(const std::vector<ParameterGroup>& groups, const AdamW8bitOptions& options)
    : Optimizer(groups, options.lr, options.weight_decay), options_(options) {
  detail::check_fields(options);
}

nlohmann::ordered_json AdamW8bit::own_options() const { return to_json_value(options_); }

bool AdamW8bit::uses_kernels() const {
  return detail::uses_cpu_kernels() && std::ranges::all_of(flat_.values(), [](const torch::Tensor& values) {
           return values.is_cpu() && values.scalar_type() == at::kFloat;
         });
}

void AdamW8bit::update() {
  for (const FlatRange& range : begin_step())
    for (std::size_t i = range.first; i < range.last; ++i)
      if (flat_.layout()->slots[i].size > 0) update_parameter(i, groups_[range.group], range.steps);
}

NamedTensors AdamW8bit::moments(std::size_t slot) {
  const Moments& of = moments_of(slot);
  NamedTensors result{{"exp_avg", of.mean}, {"exp_avg_sq", of.square}};
  if (of.mean_absmax.defined()) {
    result.emplace_back("exp_avg_absmax", of.mean_absmax);
    result.emplace_back("exp_avg_sq_absmax", of.square_absmax);
  }
  return result;
}

void AdamW8bit::reset_moments(std::size_t slot) { moments_.erase(flat_.layout()->slots[slot].name); }

AdamW8bit::Moments& AdamW8bit::moments_of(std::size_t slot) {
  const torch::Tensor& parameter = flat_.parameter(slot);
  Moments& of = moments_[flat_.layout()->slots[slot].name];
  const auto ready = [&](torch::Tensor& tensor, at::IntArrayRef sizes, at::ScalarType type) {
    const auto options = torch::TensorOptions().device(parameter.device()).dtype(type);
    tensor = tensor.defined() ? tensor.to(options) : at::zeros(sizes, options);
  };
  const bool is_small = parameter.numel() < options_.min_8bit_size;
  const auto type = !is_small ? at::kByte : parameter.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  ready(of.mean, parameter.sizes(), type);
  ready(of.square, parameter.sizes(), type);
  if (is_small) return of;
  const std::int64_t blocks = detail::quantization_blocks(parameter.numel());
  ready(of.mean_absmax, blocks, at::kFloat);
  ready(of.square_absmax, blocks, at::kFloat);
  return of;
}

void AdamW8bit::update_parameter(std::size_t slot, const ParamGroup& group, std::int64_t steps) {
  const torch::Tensor parameter = flat_.parameter(slot).detach();
  const auto type = parameter.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const torch::Tensor values = parameter.to(type).contiguous();
  const torch::Tensor gradients = flat_.parameter(slot).grad().to(type).contiguous();
  const auto n = static_cast<double>(steps);
  const Step step{.scale = gradient_scale(),
                  .keep = 1 - group.lr * group.weight_decay,
                  .beta1 = options_.beta1,
                  .beta2 = options_.beta2,
                  .eps = options_.eps,
                  .correction = std::sqrt(1 - std::pow(options_.beta2, n)),
                  .rate = group.lr / (1 - std::pow(options_.beta1, n))};
  if (values.is_cpu() && type == at::kFloat && detail::uses_cpu_kernels())
    update_in_one_pass(values, gradients, moments_of(slot), step);
  else
    update_by_operators(values, gradients, moments_of(slot), step);
  if (!values.is_same(parameter)) parameter.copy_(values);
}

void AdamW8bit::update_in_one_pass(const torch::Tensor& values, const torch::Tensor& gradients,
                                   const Moments& of, const Step& step) {
  const auto update = [step](auto& value, auto gradient, auto& mean, auto& square) {
    gradient = gradient * step.scale;
    mean = mean * step.beta1 + gradient * (1 - step.beta1);
    square = square * step.beta2 + gradient * gradient * (1 - step.beta2);
    value = value * step.keep - mean / (sqrt(square) / step.correction + step.eps) * step.rate;
  };
  if (!of.mean_absmax.defined()) {
    if (!detail::one_pass<2>(values, gradients, {of.mean, of.square}, update))
      update_by_operators(values, gradients, of, step);
    return;
  }
  const auto &with_sign = detail::DynamicMap::with_sign(), &without_sign = detail::DynamicMap::without_sign();
  constexpr std::int64_t length = detail::quantization_block;
  const std::int64_t elements = values.numel();
  auto *value = values.data_ptr<float>(), *mean_absmax = of.mean_absmax.data_ptr<float>(),
       *square_absmax = of.square_absmax.data_ptr<float>();
  const auto* gradient = gradients.data_ptr<float>();
  auto *means = of.mean.data_ptr<std::uint8_t>(), *squares = of.square.data_ptr<std::uint8_t>();
  const auto run = [=, &with_sign, &without_sign](std::int64_t first, std::int64_t last) {
    detail::BlockValues mean, square;
    for (auto i = first; i < last; ++i) {
      const auto at = i * length, size = std::min(length, elements - at);
      detail::dequantize_block(with_sign, means + at, mean_absmax[i], size, mean);
      detail::dequantize_block(without_sign, squares + at, square_absmax[i], size, square);
      detail::one_pass<float, 2>(size, value + at, gradient + at, {mean.data(), square.data()}, update);
      mean_absmax[i] = detail::quantize_block(with_sign, mean, size, means + at);
      square_absmax[i] = detail::quantize_block(without_sign, square, size, squares + at);
    }
  };
  at::parallel_for(0, detail::quantization_blocks(elements), detail::grain / length, run);
}

void AdamW8bit::update_by_operators(const torch::Tensor& values, const torch::Tensor& gradients,
                                    const Moments& of, const Step& step) {
  const auto &with_sign = detail::DynamicMap::with_sign(), &without_sign = detail::DynamicMap::without_sign();
  const bool has_codes = of.mean_absmax.defined();
  const auto read = [&](const auto& map, const torch::Tensor& moment, const torch::Tensor& absmax) {
    return has_codes ? detail::dequantized(map, moment, absmax, values.scalar_type()) : moment;
  };
  const torch::Tensor mean = read(with_sign, of.mean, of.mean_absmax),
                      square = read(without_sign, of.square, of.square_absmax);
  const torch::Tensor scaled = step.scale == 1 ? gradients : gradients.mul(step.scale);
  mean.mul_(step.beta1).add_(scaled, 1 - step.beta1);
  square.mul_(step.beta2).addcmul_(scaled, scaled, 1 - step.beta2);
  values.mul_(step.keep).addcdiv_(mean, square.sqrt().div_(step.correction).add_(step.eps), -step.rate);
  if (!has_codes) return;
  detail::quantize(with_sign, mean, of.mean, of.mean_absmax);
  detail::quantize(without_sign, square, of.square, of.square_absmax);
}

}  // namespace etude::inline v0
