#include "etude/optim/rules/lamb.hpp"

#include <torch/types.h>

#include <vector>

#include "etude/optim/rules/adam_direction.hpp"

namespace etude::inline v0 {

NamedTensors LAMBRule::moments(const torch::Tensor& parameter) const {
  return detail::zeros_for(parameter, {"exp_avg", "exp_avg_sq"});
}

void LAMBRule::update(const torch::Tensor& values, const torch::Tensor& gradient,
                      std::vector<torch::Tensor>& moments, const RuleStep& s) const {
  const torch::Tensor update = detail::adam_direction({.beta1 = options.beta1,
                                                       .beta2 = options.beta2,
                                                       .eps = options.eps,
                                                       .correct_bias = options.bias_correction},
                                                      gradient, moments[0], moments[1], s.step);
  if (s.weight_decay != 0) {
    if (options.decoupled_decay)
      values.mul_(1 - s.lr * s.weight_decay);
    else
      update.add_(values, s.weight_decay);
  }
  if (s.weight_decay == 0 && !options.always_adapt) {
    values.sub_(update, s.lr);
    return;
  }
  const torch::Tensor value_norm = values.norm(), update_norm = update.norm();
  const torch::Tensor ratio =
      value_norm.div(update_norm).masked_fill_(value_norm.eq(0).logical_or_(update_norm.eq(0)), 1);
  if (options.trust_clip) ratio.clamp_max_(1);
  values.addcmul_(update, ratio, -s.lr);
}

}  // namespace etude::inline v0
