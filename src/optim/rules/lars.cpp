#include "etude/optim/rules/lars.hpp"

#include <torch/types.h>

#include <vector>

#include "etude/optim/rules/adam_direction.hpp"
#include "etude/optim/rules/sgd.hpp"
#include "etude/optim/update_tensor.hpp"

namespace etude::inline v0 {

namespace detail {

namespace {

SGDOptions sgd_of(const LARSOptions& options) {
  return {.momentum = options.momentum, .dampening = options.dampening, .nesterov = options.nesterov};
}

}  // namespace

}  // namespace detail

void LARSRule::check(const Options& options) { SGDRule::check(detail::sgd_of(options)); }

NamedTensors LARSRule::moments(const torch::Tensor& parameter) const {
  if (options.momentum == 0) return {};
  return detail::zeros_for(parameter, {"momentum_buffer"});
}

void LARSRule::update(const torch::Tensor& values, const torch::Tensor& gradient,
                      std::vector<torch::Tensor>& moments, const RuleStep& s) const {
  torch::Tensor scaled = gradient;
  if (s.weight_decay != 0 || options.always_adapt) {
    const torch::Tensor value_norm = values.norm(), gradient_norm = gradient.norm();
    const torch::Tensor ratio = value_norm.mul(options.trust_coeff)
                                    .div_(gradient_norm.add(value_norm, s.weight_decay).add_(options.eps))
                                    .masked_fill_(value_norm.eq(0).logical_or_(gradient_norm.eq(0)), 1);
    if (options.trust_clip) ratio.div_(s.lr).clamp_max_(1);
    scaled = gradient.add(values, s.weight_decay).mul_(ratio);
  }
  SGDOptions sgd = detail::sgd_of(options);
  if (moments.empty()) sgd.momentum = 0;
  detail::update_tensor(SGDRule{sgd}, values, scaled, moments,
                        {.lr = s.lr, .weight_decay = 0, .step = s.step});
}

}  // namespace etude::inline v0
