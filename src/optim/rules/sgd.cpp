#include "etude/optim/sgd.hpp"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/libtorch/optim.hpp"
#include "etude/optim/one_pass.hpp"
#include "etude/reflect/check_fields.hpp"
#include "etude/reflect/json.hpp"

namespace etude::inline v0 {

SGD::SGD(const std::vector<ParameterGroup>& groups, const SGDOptions& options)
    : FlatOptimizer(groups, options.lr, options.weight_decay, moments_of(options),
                    RoundingOptions{options.rounding, options.seed}),
      options_(options) {
  detail::check_fields(options);
  if (options.nesterov && (options.momentum == 0 || options.dampening != 0)) {
    throw ArgumentError("nesterov is true: momentum must be above 0 and dampening 0");
  }
}

nlohmann::ordered_json SGD::own_options() const { return to_json_value(options_); }

std::string SGD::sparse_fault(const ParamGroup& group) const {
  return options_.momentum != 0 ? detail::must_be_zero("momentum", options_.momentum)
                                : detail::must_be_zero("weight_decay", group.weight_decay);
}

bool SGD::in_one_pass() const { return options_.fused; }

bool SGD::has_libtorch_kernel(const torch::Tensor& values) const {
  return options_.fused && libtorch::has_fused_optimizers(values);
}

bool SGD::has_capturable_kernel(const torch::Tensor& values) const {
  return options_.fused && libtorch::has_capturable_kernels(values);
}

void SGD::update_by_libtorch(const Lists& lists, const ParamGroup& group, std::int64_t steps) {
  libtorch::fused_sgd(
      lists.values, lists.gradients, lists.moments,
      {group.lr, options_.momentum, options_.dampening, group.weight_decay, options_.nesterov, steps == 1},
      gradient_scale(), lists.rate);
}

void SGD::update_range(const Range& range, const ParamGroup& group, std::int64_t steps) {
  const double momentum = options_.momentum;
  if (options_.fused && update_in_one_pass(range, group, steps)) return;
  torch::Tensor gradients = scaled(range.gradients);
  if (group.weight_decay != 0) gradients = gradients.add(range.values, group.weight_decay);
  if (momentum != 0) {
    const torch::Tensor& buffer = range.moments[0];
    if (steps == 1) {
      buffer.copy_(gradients);
    } else {
      buffer.mul_(momentum).add_(gradients, 1 - options_.dampening);
    }
    gradients = options_.nesterov ? gradients.add(buffer, momentum) : buffer;
  }
  range.values.add_(gradients, -group.lr);
}

std::vector<SGD::Moment> SGD::moments_of(const SGDOptions& options) {
  if (options.momentum == 0) return {};
  return {{"momentum_buffer"}};
}

bool SGD::update_in_one_pass(const Range& range, const ParamGroup& group, std::int64_t steps) const {
  const double scale = gradient_scale(), penalty = group.weight_decay, lr = group.lr;
  if (options_.momentum == 0) {
    return detail::one_pass<0>(
        range.values, range.gradients, range.moments,
        [=](auto& value, auto gradient) { value = value - (gradient * scale + value * penalty) * lr; },
        rounding_of(range, steps));
  }
  // The first gradient initializes the momentum.
  const double keep = steps == 1 ? 0 : options_.momentum, add = steps == 1 ? 1 : 1 - options_.dampening;
  const double ahead = options_.nesterov ? options_.momentum : 1, direct = options_.nesterov ? 1 : 0;
  return detail::one_pass<1>(
      range.values, range.gradients, range.moments,
      [=](auto& value, auto gradient, auto& momentum) {
        gradient = gradient * scale + value * penalty;
        momentum = momentum * keep + gradient * add;
        value = value - (gradient * direct + momentum * ahead) * lr;
      },
      rounding_of(range, steps));
}

}  // namespace etude::inline v0
