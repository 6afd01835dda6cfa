#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "etude/optim/flat_optimizer.hpp"
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
               (bool, fused, "one-pass kernels where available; false gives the bits of torch::optim", true),
               (Rounding, rounding, "rounding of bfloat16 parameters: kahan adds 2 bytes each",
                Rounding::kahan),
               (std::int64_t, seed, "seed of stochastic rounding" | at_least(0), 0));
};
using AdamOptions = AnyAdamOptions<false>;
using AdamWOptions = AnyAdamOptions<true>;

namespace detail {

class AdamBase : public FlatOptimizer {
 protected:
  AdamBase(const std::vector<ParameterGroup>& groups, const AdamWOptions& options, bool decoupled);

  nlohmann::ordered_json own_options() const override;

  bool in_one_pass() const override;
  bool has_libtorch_kernel(const torch::Tensor& values) const override;
  bool has_capturable_kernel(const torch::Tensor& values) const override;
  void update_by_libtorch(const Lists& lists, const ParamGroup& group, std::int64_t) override;
  void update_range(const Range& range, const ParamGroup& group, std::int64_t steps) override;

 private:
  static std::vector<Moment> moments_of(const AdamWOptions& options);

  template <std::size_t moments>
  bool update_in_one_pass(const Range& range, const ParamGroup& group, std::int64_t steps, double correction,
                          double rate) const;

  AdamWOptions options_;
  bool decoupled_;
};

}  // namespace detail

/// Adam (Kingma and Ba 2015) with an L2 penalty, equivalent to torch::optim::Adam.
struct Adam : detail::AdamBase {
  explicit Adam(const std::vector<ParameterGroup>& groups, const AdamOptions& options = {});
};

/// Adam with decoupled weight decay (Loshchilov and Hutter 2019), equivalent to torch::optim::AdamW.
struct AdamW : detail::AdamBase {
  explicit AdamW(const std::vector<ParameterGroup>& groups, const AdamWOptions& options = {});
};

}  // namespace etude::inline v0
