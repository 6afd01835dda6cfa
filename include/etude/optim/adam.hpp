#pragma once

#include <ATen/ops/maximum.h>

#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>
#include "etude/libtorch/optim.hpp"
#include "etude/optim/flat_optimizer.hpp"
#include "etude/optim/one_pass.hpp"
#include "etude/optim/options.hpp"
#include "etude/reflect/json.hpp"
#include "etude/reflect/struct.hpp"

namespace etude {

struct AdamOptions {
  ETUDE_STRUCT(AdamOptions, (double, lr, "learning rate", 1e-3),
               (double, beta1, "decay of the mean of the gradients", 0.9),
               (double, beta2, "decay of the mean of their squares", 0.999),
               (double, eps, "added to the denominator", 1e-8),
               (double, weight_decay, "L2 penalty: its gradient is added to the gradient", 0.0),
               (bool, amsgrad, "divide by the largest mean of squares so far", false),
               (bool, fused, "one pass over memory, where there is a kernel for it", true));
};

struct AdamWOptions {
  ETUDE_STRUCT(AdamWOptions, (double, lr, "learning rate", 1e-3),
               (double, beta1, "decay of the mean of the gradients", 0.9),
               (double, beta2, "decay of the mean of their squares", 0.999),
               (double, eps, "added to the denominator", 1e-8),
               (double, weight_decay, "weights shrink by lr * weight_decay a step", 1e-2),
               (bool, amsgrad, "divide by the largest mean of squares so far", false),
               (bool, fused, "one pass over memory, where there is a kernel for it", true));
};

namespace detail {

template <typename Options, bool decoupled>
class AdamBase : public FlatOptimizer {
 public:
  explicit AdamBase(const std::vector<ParameterGroup>& groups, const Options& options = {})
      : FlatOptimizer(groups, options.lr, options.weight_decay, moments_of(options)), options_(options) {
    check_options({{"lr", options.lr, 0},
                   {"beta1", options.beta1, 0, 1},
                   {"beta2", options.beta2, 0, 1},
                   {"eps", options.eps, 0},
                   {"weight_decay", options.weight_decay, 0}});
  }

 protected:
  nlohmann::ordered_json own_options() const override { return to_json_value(options_); }

  bool in_one_pass() const override { return options_.fused; }
  bool has_libtorch_kernel(const torch::Tensor& values) const override {
    return options_.fused && libtorch::has_fused_optimizers(values);
  }
  void update_by_libtorch(const Lists& lists, const ParamGroup& group, std::int64_t) override {
    libtorch::fused_adam(lists.values, lists.gradients, lists.moments, lists.steps,
                         {group.lr, options_.beta1, options_.beta2, options_.eps, group.weight_decay,
                          options_.amsgrad, decoupled},
                         gradient_scale());
  }

  void update_range(const Range& range, const ParamGroup& group, std::int64_t steps) override {
    const auto& [lr, beta1, beta2, eps, weight_decay, amsgrad, unused] = options_;
    const auto n = static_cast<double>(steps);
    const double correction = std::sqrt(1 - std::pow(beta2, n)), rate = group.lr / (1 - std::pow(beta1, n));
    if (options_.fused && (amsgrad ? update_in_one_pass<3>(range, group, correction, rate)
                                   : update_in_one_pass<2>(range, group, correction, rate)))
      return;
    const torch::Tensor &values = range.values, &mean = range.moments[0], &square = range.moments[1];
    torch::Tensor gradients = scaled(range.gradients);
    if (group.weight_decay != 0 && decoupled) {
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

 private:
  static std::vector<Moment> moments_of(const Options& options) {
    std::vector<Moment> moments{{"exp_avg"}, {"exp_avg_sq"}};
    if (options.amsgrad) moments.push_back({"max_exp_avg_sq"});
    return moments;
  }

  template <std::size_t moments>
  bool update_in_one_pass(const Range& range, const ParamGroup& group, double correction, double rate) const {
    const double scale = gradient_scale(), penalty = decoupled ? 0 : group.weight_decay,
                 keep = decoupled ? 1 - group.lr * group.weight_decay : 1;
    return one_pass<moments>(range.values, range.gradients, range.moments,
                             [=, beta1 = options_.beta1, beta2 = options_.beta2, eps = options_.eps](
                                 auto& value, auto gradient, auto& mean, auto& square, auto&... largest) {
                               gradient = gradient * scale + value * penalty;
                               mean = mean * beta1 + gradient * (1 - beta1);
                               square = square * beta2 + gradient * gradient * (1 - beta2);
                               auto denominator = square;
                               ((denominator = largest = max(largest, square)), ...);
                               value = value * keep - mean / (sqrt(denominator) / correction + eps) * rate;
                             });
  }

  Options options_;
};

}  // namespace detail

/// Adam (Kingma and Ba 2015), with L2 penalty as torch::optim::Adam has it.
struct Adam : detail::AdamBase<AdamOptions, false> {
  using AdamBase::AdamBase;
};

/// Adam with decoupled weight decay (Loshchilov and Hutter 2019), as torch::optim::AdamW.
struct AdamW : detail::AdamBase<AdamWOptions, true> {
  using AdamBase::AdamBase;
};

}  // namespace etude
