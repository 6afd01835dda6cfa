#include "etude/optim/rmsprop.hpp"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <tuple>
#include <vector>

#include "etude/optim/one_pass.hpp"
#include "etude/reflect/check_fields.hpp"
#include "etude/reflect/json.hpp"

namespace etude::inline v0 {

RMSprop::RMSprop(const std::vector<ParameterGroup>& groups, const RMSpropOptions& options)
    : FlatOptimizer(groups, options.lr, options.weight_decay, moments_of(options)), options_(options) {
  detail::check_fields(options);
}

nlohmann::ordered_json RMSprop::own_options() const { return to_json_value(options_); }

bool RMSprop::in_one_pass() const { return options_.fused; }

template <bool with_momentum, bool with_mean>
bool RMSprop::update_in_one_pass(const Range& range, const ParamGroup& group) const {
  const auto update = [options = options_, lr = group.lr, penalty = group.weight_decay,
                       scale = gradient_scale()](auto& value, auto gradient, auto& square, auto&... rest) {
    const auto more = std::tie(rest...);
    gradient = gradient * scale + value * penalty;
    square = square * options.alpha + gradient * gradient * (1 - options.alpha);
    auto variance = square;
    if constexpr (with_mean) {
      auto& mean = std::get<sizeof...(rest) - 1>(more);
      mean = mean * options.alpha + gradient * (1 - options.alpha);
      variance = square - mean * mean;
    }
    gradient = gradient / (sqrt(variance) + options.eps);
    if constexpr (with_momentum) {
      auto& buffer = std::get<0>(more);
      gradient = buffer = buffer * options.momentum + gradient;
    }
    value = value - gradient * lr;
  };
  return detail::one_pass<1 + with_momentum + with_mean>(range.values, range.gradients, range.moments,
                                                         update);
}

void RMSprop::update_range(const Range& range, const ParamGroup& group, std::int64_t) {
  const auto& [lr, alpha, eps, weight_decay, momentum, centered, fused] = options_;
  if (fused && (momentum > 0 ? centered ? update_in_one_pass<true, true>(range, group)
                                        : update_in_one_pass<true, false>(range, group)
                : centered ? update_in_one_pass<false, true>(range, group)
                             : update_in_one_pass<false, false>(range, group)))
    return;
  torch::Tensor gradients = scaled(range.gradients);
  if (group.weight_decay != 0) gradients = gradients.add(range.values, group.weight_decay);
  const torch::Tensor& square = range.moments[0];
  square.mul_(alpha).addcmul_(gradients, gradients, 1 - alpha);
  torch::Tensor denominator;
  if (centered) {
    const torch::Tensor& mean = range.moments.back();
    mean.mul_(alpha).add_(gradients, 1 - alpha);
    denominator = square.addcmul(mean, mean, -1).sqrt_().add_(eps);
  } else {
    denominator = square.sqrt().add_(eps);
  }
  if (momentum > 0) {
    const torch::Tensor& buffer = range.moments[1];
    buffer.mul_(momentum).addcdiv_(gradients, denominator);
    range.values.add_(buffer, -group.lr);
  } else {
    range.values.addcdiv_(gradients, denominator, -group.lr);
  }
}

std::vector<RMSprop::Moment> RMSprop::moments_of(const RMSpropOptions& options) {
  std::vector<Moment> moments{{"square_avg"}};
  if (options.momentum > 0) moments.push_back({"momentum_buffer"});
  if (options.centered) moments.push_back({"grad_avg"});
  return moments;
}

}  // namespace etude::inline v0
