#include "etude/optim/adam.hpp"

#include <ATen/ops/maximum.h>

#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "etude/libtorch/optim.hpp"
#include "etude/optim/one_pass.hpp"
#include "etude/reflect/check_fields.hpp"
#include "etude/reflect/json.hpp"

namespace etude::inline v0 {

namespace detail {

std::vector<AdamBase::Moment> AdamBase::moments_of(const AdamWOptions& options) {
  std::vector<Moment> moments{{"exp_avg"}, {"exp_avg_sq"}};
  if (options.amsgrad) moments.push_back({"max_exp_avg_sq"});
  return moments;
}

AdamBase::AdamBase(const std::vector<ParameterGroup>& groups, const AdamWOptions& options, bool decoupled)
    : FlatOptimizer(groups, options.lr, options.weight_decay, moments_of(options),
                    RoundingOptions{options.rounding, options.seed}),
      options_(options),
      decoupled_(decoupled) {
  check_fields(options);
}

nlohmann::ordered_json AdamBase::own_options() const { return to_json_value(options_); }

bool AdamBase::in_one_pass() const { return options_.fused; }

bool AdamBase::has_libtorch_kernel(const torch::Tensor& values) const {
  return options_.fused && libtorch::has_fused_optimizers(values);
}

bool AdamBase::has_capturable_kernel(const torch::Tensor& values) const {
  return options_.fused && libtorch::has_capturable_kernels(values);
}

void AdamBase::update_by_libtorch(const Lists& lists, const ParamGroup& group, std::int64_t) {
  libtorch::fused_adam(lists.values, lists.gradients, lists.moments, lists.steps,
                       {group.lr, options_.beta1, options_.beta2, options_.eps, group.weight_decay,
                        options_.amsgrad, decoupled_},
                       gradient_scale(), lists.rate);
}

template <std::size_t moments>
bool AdamBase::update_in_one_pass(const Range& range, const ParamGroup& group, std::int64_t steps,
                                  double correction, double rate) const {
  const double scale = gradient_scale(), penalty = decoupled_ ? 0 : group.weight_decay,
               keep = decoupled_ ? 1 - group.lr * group.weight_decay : 1;
  return one_pass<moments>(
      range.values, range.gradients, range.moments,
      [=, beta1 = options_.beta1, beta2 = options_.beta2, eps = options_.eps](
          auto& value, auto gradient, auto& mean, auto& square, auto&... largest) {
        gradient = gradient * scale + value * penalty;
        mean = mean * beta1 + gradient * (1 - beta1);
        square = square * beta2 + gradient * gradient * (1 - beta2);
        auto denominator = square;
        ((denominator = largest = max(largest, square)), ...);
        value = value * keep - mean / (sqrt(denominator) / correction + eps) * rate;
      },
      rounding_of(range, steps));
}

void AdamBase::update_range(const Range& range, const ParamGroup& group, std::int64_t steps) {
  const auto &beta1 = options_.beta1, &beta2 = options_.beta2, &eps = options_.eps;
  const bool amsgrad = options_.amsgrad;
  const auto n = static_cast<double>(steps);
  const double correction = std::sqrt(1 - std::pow(beta2, n)), rate = group.lr / (1 - std::pow(beta1, n));
  if (options_.fused && (amsgrad ? update_in_one_pass<3>(range, group, steps, correction, rate)
                                 : update_in_one_pass<2>(range, group, steps, correction, rate)))
    return;
  const torch::Tensor &values = range.values, &mean = range.moments[0], &square = range.moments[1];
  torch::Tensor gradients = scaled(range.gradients);
  if (group.weight_decay != 0 && decoupled_) {
    values.mul_(1 - group.lr * group.weight_decay);
  } else if (group.weight_decay != 0) {
    gradients = gradients.add(values, group.weight_decay);
  }
  mean.mul_(beta1).add_(gradients, 1 - beta1);
  square.mul_(beta2).addcmul_(gradients, gradients, 1 - beta2);
  torch::Tensor denominator;
  if (amsgrad) {
    torch::Tensor largest = range.moments[2];
    denominator = at::maximum_out(largest, largest, square).sqrt();
  } else {
    denominator = square.sqrt();
  }
  denominator.div_(correction).add_(eps);
  values.addcdiv_(mean, denominator, -rate);
}

}  // namespace detail

Adam::Adam(const std::vector<ParameterGroup>& groups, const AdamOptions& options)
    : AdamBase(groups,
               {.lr = options.lr,
                .beta1 = options.beta1,
                .beta2 = options.beta2,
                .eps = options.eps,
                .weight_decay = options.weight_decay,
                .amsgrad = options.amsgrad,
                .fused = options.fused,
                .rounding = options.rounding,
                .seed = options.seed},
               /*decoupled=*/false) {}

AdamW::AdamW(const std::vector<ParameterGroup>& groups, const AdamWOptions& options)
    : AdamBase(groups, options, /*decoupled=*/true) {}

}  // namespace etude::inline v0
