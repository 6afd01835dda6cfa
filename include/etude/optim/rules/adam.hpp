#pragma once

#include <torch/types.h>
#include <array>
#include <cmath>
#include <cstdint>
#include <tuple>

#include "etude/libtorch/optim.hpp"
#include "etude/optim/rule_optimizer.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

template <bool decoupled>
struct AnyAdamOptions {
  ETUDE_STRUCT(AnyAdamOptions, (double, lr, "learning rate" | at_least(0), 1e-3),
               (double, beta1, "decay of the mean of the gradients" | at_least(0).below(1), 0.9),
               (double, beta2, "decay of the mean of their squares" | at_least(0).below(1), 0.999),
               (double, eps, "added to the denominator" | at_least(0), 1e-8),
               (double, weight_decay,
                (decoupled ? "decoupled weight decay" : "L2 penalty, added to the gradient") | at_least(0),
                decoupled ? 1e-2 : 0.0),
               (bool, amsgrad, "divide by the largest mean of squares so far", false),
               (bool, fused, "one-pass kernels where available; false matches torch::optim bit for bit",
                true),
               (Rounding, rounding, "rounding of bfloat16 parameters: kahan adds 2 bytes each",
                Rounding::kahan),
               (std::int64_t, seed, "seed of stochastic rounding" | at_least(0), 0));
};
using AdamOptions = AnyAdamOptions<false>;
using AdamWOptions = AnyAdamOptions<true>;

namespace detail {

template <bool decoupled, class OptionsOf = AnyAdamOptions<decoupled>>
struct AnyAdamRule {
  using Options = OptionsOf;

  static auto moments(const Options& o) {
    bool amsgrad = false;
    if constexpr (requires { o.amsgrad; }) amsgrad = o.amsgrad;
    return std::tuple(Moment{"exp_avg"}, Moment{.name = "exp_avg_sq", .has_sign = false},
                      OptionalMoment{"max_exp_avg_sq", amsgrad, /*has_sign=*/false});
  }

  auto numbers(const RuleStep& s) const {
    const auto n = static_cast<double>(s.step);
    return std::array{s.lr / (1 - std::pow(options.beta1, n)), std::sqrt(1 - std::pow(options.beta2, n)),
                      decoupled ? 1 - s.lr * s.weight_decay : 1, decoupled ? 0 : s.weight_decay};
  }

  template <class V>
  void update(V& value, const V& raw, V& mean, V& square, auto&& largest, const auto& numbers) const {
    const auto& [rate, correction, keep, penalty] = numbers;
    const V gradient = raw + value * penalty;
    mean = mean * options.beta1 + gradient * (1 - options.beta1);
    square = square * options.beta2 + gradient * gradient * (1 - options.beta2);
    V variance = square;
    if constexpr (is_kept<decltype(largest)>) variance = largest = max(largest, square);
    value = value * keep - mean / (sqrt(variance) / correction + options.eps) * rate;
  }

  static bool has_libtorch_kernel(const torch::Tensor& values) {
    return libtorch::has_fused_optimizers(values);
  }
  static bool has_capturable_kernel(const torch::Tensor& values) {
    return libtorch::has_capturable_kernels(values);
  }
  void update_by_libtorch(const auto& lists, const RuleStep& s, double gradient_scale) const {
    libtorch::fused_adam(
        lists.values, lists.gradients, lists.moments, lists.steps,
        {s.lr, options.beta1, options.beta2, options.eps, s.weight_decay, options.amsgrad, decoupled},
        gradient_scale, lists.rate);
  }

  Options options;
};

}  // namespace detail

/// Adam (Kingma and Ba 2015) with an L2 penalty, equivalent to torch::optim::Adam.
struct AdamRule : detail::AnyAdamRule<false> {};
using Adam = RuleOptimizer<AdamRule>;
extern template class RuleOptimizer<AdamRule>;

/// Adam with decoupled weight decay (Loshchilov and Hutter 2019), equivalent to torch::optim::AdamW.
struct AdamWRule : detail::AnyAdamRule<true> {};
using AdamW = RuleOptimizer<AdamWRule>;
extern template class RuleOptimizer<AdamWRule>;

}  // namespace etude::inline v0
