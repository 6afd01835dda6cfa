#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <tuple>

#include "etude/base/error.hpp"
#include "etude/optim/rule_optimizer.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

struct AdamWScheduleFreeOptions {
  ETUDE_STRUCT(
      AdamWScheduleFreeOptions, (double, lr, "learning rate" | at_least(0), 2.5e-3),
      (double, beta1, "share of the average in the weights of the training" | above(0).below(1), 0.9),
      (double, beta2, "decay of the mean of the gradients' squares" | at_least(0).below(1), 0.999),
      (double, eps, "added to the denominator" | at_least(0), 1e-8),
      (double, weight_decay, "decoupled weight decay" | at_least(0), 0.0),
      (std::int64_t, warmup_steps, "steps in which the learning rate rises to lr" | at_least(0), 0),
      (double, r, "step k has a weight of k^r in the average" | at_least(0), 0.0),
      (double, weight_lr_power,
       "a step's weight is also multiplied by the largest learning rate so far, to this power" | at_least(0),
       2.0),
      (Rounding, rounding, "rounding of bfloat16 parameters: kahan adds 2 bytes each", Rounding::kahan),
      (std::int64_t, seed, "seed of stochastic rounding" | at_least(0), 0));
};

struct SGDScheduleFreeOptions {
  ETUDE_STRUCT(
      SGDScheduleFreeOptions, (double, lr, "learning rate" | at_least(0), 1.0),
      (double, momentum, "share of the average in the weights of the training" | above(0).below(1), 0.9),
      (double, weight_decay, "L2 penalty, added to the gradient" | at_least(0), 0.0),
      (std::int64_t, warmup_steps, "steps in which the learning rate rises to lr" | at_least(0), 0),
      (double, r, "step k has a weight of k^r in the average" | at_least(0), 0.0),
      (double, weight_lr_power,
       "a step's weight is also multiplied by the largest learning rate so far, to this power" | at_least(0),
       2.0),
      (Rounding, rounding, "rounding of bfloat16 parameters: kahan adds 2 bytes each", Rounding::kahan),
      (std::int64_t, seed, "seed of stochastic rounding" | at_least(0), 0));
};

namespace detail {

/// The common part of both Schedule-Free optimizers (Defazio et al. 2024, "The Road Less Scheduled"). Plain
/// steps move z, whose weighted average x is evaluated and saved; the training's weights are y
/// = momentum * x + (1 - momentum) * z. The moment is z - y, from which x = y + (1 - 1 / momentum) (z - y).
template <class GivenOptions, auto momentum>
struct ScheduleFreeRule {
  using Options = GivenOptions;

  /// As in the authors' package: the group's steps, the largest learning rate so far, and the sum of the
  /// steps' weights in the average.
  static constexpr std::array kept{"k", "lr_max", "weight_sum"};

  void begin_step(ParamGroup& group) const {
    if (group.momentum)
      throw ArgumentError(
          "cycle_momentum is true: must be false with Schedule-Free, whose average depends on its momentum");
    auto& now = group.kept;
    now["k"] += 1;
    now["lr_max"] = std::max(now["lr_max"], group.lr * warmup(group));
    now["weight_sum"] += weight(group);
  }

  /// x - y, as a multiple of the first moment.
  double average() const { return 1 - 1 / (options.*momentum); }

  Options options;

 protected:
  /// The share of z in the next x; the step of y along the direction of the gradients; the same for z - y.
  std::array<double, 3> averaging(const ParamGroup& group) const {
    const double sum = group.kept.at("weight_sum"), share = sum > 0 ? weight(group) / sum : 0;
    const double lr = group.lr * warmup(group), of_average = (options.*momentum) * (1 - share);
    return {share, lr * (1 - of_average), lr * of_average};
  }

  /// Moves y and z - y along a direction of the gradients.
  template <class V>
  static void move(V& value, V& offset, const V& direction, const auto& share, const auto& step,
                   const auto& offset_step) {
    value = value + offset * share - direction * step;
    offset = offset * (1 - share) - direction * offset_step;
  }

 private:
  double warmup(const ParamGroup& group) const {
    const double k = group.kept.at("k"), steps = static_cast<double>(options.warmup_steps);
    return k < steps ? k / steps : 1;
  }
  double weight(const ParamGroup& group) const {
    return std::pow(group.kept.at("k"), options.r) *
           std::pow(group.kept.at("lr_max"), options.weight_lr_power);
  }
};

}  // namespace detail

/// Schedule-Free AdamW, as in the authors' package schedulefree (AdamWScheduleFree), except that the bias
/// correction counts the steps of the parameter and not those of its group, many of which the parameter may
/// have missed. It needs no learning rate schedule: lr_scheduler_type constant leaves the rate to it. Batch
/// norms gather their running statistics at the training's weights, so these fit the average less well.
struct AdamWScheduleFreeRule
    : detail::ScheduleFreeRule<AdamWScheduleFreeOptions, &AdamWScheduleFreeOptions::beta1> {
  static auto moments(const Options&) { return std::tuple(Moment{"z_minus_y"}, Moment{"exp_avg_sq"}); }

  auto numbers(const RuleStep& s, const ParamGroup& group) const {
    const auto [share, step, offset_step] = averaging(group);
    return std::array{std::sqrt(1 - std::pow(options.beta2, static_cast<double>(s.step))), s.weight_decay,
                      share, step, offset_step};
  }

  template <class V>
  void update(V& value, const V& gradient, V& offset, V& square, const auto& numbers) const {
    const auto& [correction, decay, share, step, offset_step] = numbers;
    square = square * options.beta2 + gradient * gradient * (1 - options.beta2);
    const V direction = gradient / (sqrt(square) / correction + options.eps) + value * decay;
    move(value, offset, direction, share, step, offset_step);
  }
};

/// Schedule-Free SGD, as in the authors' package schedulefree (SGDScheduleFree). See AdamWScheduleFree.
struct SGDScheduleFreeRule
    : detail::ScheduleFreeRule<SGDScheduleFreeOptions, &SGDScheduleFreeOptions::momentum> {
  static auto moments(const Options&) { return std::tuple(Moment{"z_minus_y"}); }

  auto numbers(const RuleStep& s, const ParamGroup& group) const {
    const auto [share, step, offset_step] = averaging(group);
    return std::array{s.weight_decay, share, step, offset_step};
  }

  template <class V>
  void update(V& value, const V& gradient, V& offset, const auto& numbers) const {
    const auto& [decay, share, step, offset_step] = numbers;
    const V direction = gradient + value * decay;
    move(value, offset, direction, share, step, offset_step);
  }
};

using AdamWScheduleFree = RuleOptimizer<AdamWScheduleFreeRule>;
using SGDScheduleFree = RuleOptimizer<SGDScheduleFreeRule>;
extern template class RuleOptimizer<AdamWScheduleFreeRule>;
extern template class RuleOptimizer<SGDScheduleFreeRule>;

}  // namespace etude::inline v0
