#include "etude/optim/lion.hpp"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "etude/optim/one_pass.hpp"
#include "etude/reflect/check_fields.hpp"
#include "etude/reflect/json.hpp"

namespace etude::inline v0 {

Lion::Lion(const std::vector<ParameterGroup>& groups, const LionOptions& options)
    : FlatOptimizer(groups, options.lr, options.weight_decay, {{"exp_avg"}},
                    RoundingOptions{options.rounding, options.seed}),
      options_(options) {
  detail::check_fields(options);
}

nlohmann::ordered_json Lion::own_options() const { return to_json_value(options_); }

bool Lion::in_one_pass() const { return true; }

void Lion::update_range(const Range& range, const ParamGroup& group, std::int64_t steps) {
  const auto update = [beta1 = options_.beta1, beta2 = options_.beta2, lr = group.lr,
                       scale = gradient_scale(),
                       keep = 1 - group.lr * group.weight_decay](auto& value, auto gradient, auto& mean) {
    gradient = gradient * scale;
    value = value * keep - sign(mean * beta1 + gradient * (1 - beta1)) * lr;
    mean = mean * beta2 + gradient * (1 - beta2);
  };
  if (detail::one_pass<1>(range.values, range.gradients, range.moments, update, rounding_of(range, steps)))
    return;
  const torch::Tensor& momentum = range.moments[0];
  const torch::Tensor gradients = scaled(range.gradients);
  if (group.weight_decay != 0) range.values.mul_(1 - group.lr * group.weight_decay);
  const torch::Tensor direction = momentum.mul(options_.beta1).add_(gradients, 1 - options_.beta1).sign_();
  range.values.add_(direction, -group.lr);
  momentum.mul_(options_.beta2).add_(gradients, 1 - options_.beta2);
}

}  // namespace etude::inline v0
