#include "etude/optim/sparse_adam.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/optim/one_pass.hpp"
#include "etude/reflect/check_fields.hpp"
#include "etude/reflect/json.hpp"

namespace etude::inline v0 {

SparseAdam::SparseAdam(const std::vector<ParameterGroup>& groups, const SparseAdamOptions& options)
    : FlatOptimizer(groups, options.lr, 0, {{"exp_avg"}, {"exp_avg_sq"}}), options_(options) {
  detail::check_fields(options);
}

nlohmann::ordered_json SparseAdam::own_options() const { return to_json_value(options_); }

std::string SparseAdam::sparse_fault(const ParamGroup& group) const {
  return detail::must_be_zero("weight_decay", group.weight_decay);
}

bool SparseAdam::in_one_pass() const { return options_.fused; }

void SparseAdam::update() {
  flat_.mend();
  for (std::size_t i = 0; i < flat_.layout()->slots.size(); ++i) {
    const torch::Tensor& gradient = flat_.parameter(i).grad();
    if (flat_.has_gradient(i) && !(gradient.defined() && gradient.is_sparse()))
      throw ArgumentError(
          fmt::format("parameter '{}' has a dense gradient, which SparseAdam can't use: must be trained by "
                      "another optimizer",
                      flat_.layout()->slots[i].name));
  }
  FlatOptimizer::update();
}

void SparseAdam::update_range(const Range& range, const ParamGroup& group, std::int64_t steps) {
  const auto &beta1 = options_.beta1, &beta2 = options_.beta2, &eps = options_.eps;
  const auto n = static_cast<double>(steps);
  const double rate = group.lr * std::sqrt(1 - std::pow(beta2, n)) / (1 - std::pow(beta1, n));
  if (options_.fused) {
    const auto update = [=, scale = gradient_scale(), add1 = 1 - beta1, add2 = 1 - beta2](
                            auto& value, auto gradient, auto& mean, auto& square) {
      gradient = gradient * scale;
      mean = mean + (gradient - mean) * add1;
      square = square + (gradient * gradient - square) * add2;
      value = value - mean / (sqrt(square) + eps) * rate;
    };
    if (detail::one_pass<2>(range.values, range.gradients, range.moments, update)) return;
  }
  const torch::Tensor gradients = scaled(range.gradients);
  const torch::Tensor &mean = range.moments[0], &square = range.moments[1];
  mean.add_(gradients.sub(mean), 1 - beta1);
  square.add_(gradients.square().sub_(square), 1 - beta2);
  range.values.addcdiv_(mean, square.sqrt().add_(eps), -rate);
}

}  // namespace etude::inline v0
