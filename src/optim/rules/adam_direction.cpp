#include "etude/optim/rules/adam_direction.hpp"

#include <ATen/ops/zeros_like.h>
#include <torch/types.h>

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>

#include "etude/optim/parameter_optimizer.hpp"
#include "etude/optim/rules/adam.hpp"
#include "etude/optim/update_tensor.hpp"

namespace etude::inline v0::detail {

torch::Tensor adam_direction(const AdamDirection& of, const torch::Tensor& gradient,
                             const torch::Tensor& mean, const torch::Tensor& square, std::int64_t step) {
  // After so many steps, the bias corrections are 1.
  if (!of.correct_bias) step = std::numeric_limits<std::int64_t>::max();
  const double correction = std::sqrt(1 - std::pow(of.beta2, static_cast<double>(step)));
  AdamWOptions options{.beta1 = of.beta1, .beta2 = of.beta2, .eps = of.eps};
  if (of.eps_before_correction) options.eps /= correction;
  const torch::Tensor direction = at::zeros_like(gradient);
  update_tensor(AdamWRule{options}, direction, gradient, {mean, square},
                {.lr = -1, .weight_decay = 0, .step = step});
  return direction;
}

NamedTensors zeros_for(const torch::Tensor& parameter, std::initializer_list<std::string> names) {
  NamedTensors result;
  for (const std::string& name : names)
    result.emplace_back(name, at::zeros_like(parameter, parameter.options().dtype(update_type(parameter))));
  return result;
}

}  // namespace etude::inline v0::detail
