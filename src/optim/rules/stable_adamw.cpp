#include "etude/optim/rules/stable_adamw.hpp"

#include <torch/types.h>

#include <cmath>
#include <vector>

#include "etude/optim/rules/adam_direction.hpp"

namespace etude::inline v0 {

NamedTensors StableAdamWRule::moments(const torch::Tensor& parameter) const {
  return detail::zeros_for(parameter, {"exp_avg", "exp_avg_sq"});
}

void StableAdamWRule::update(const torch::Tensor& values, const torch::Tensor& gradient,
                             std::vector<torch::Tensor>& moments, const RuleStep& s) const {
  const torch::Tensor& square = moments[1];
  const torch::Tensor direction =
      detail::adam_direction({.beta1 = options.beta1, .beta2 = options.beta2, .eps = options.eps}, gradient,
                             moments[0], square, s.step);
  const double correction = 1 - std::pow(options.beta2, static_cast<double>(s.step));
  const torch::Tensor mean_square =
      gradient.square().div_(square.clamp_min(options.eps * options.eps * correction)).mean();
  const torch::Tensor rate = mean_square.mul_(correction).sqrt_().clamp_min_(1).reciprocal_().mul_(s.lr);
  if (s.weight_decay != 0) values.mul_(rate.mul(-s.weight_decay).add_(1));
  values.addcmul_(direction, rate, -1);
}

}  // namespace etude::inline v0
