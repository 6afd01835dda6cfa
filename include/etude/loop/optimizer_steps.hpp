#pragma once

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>

#include "etude/base/error.hpp"
#include "etude/loop/core.hpp"
#include "etude/metrics/metrics.hpp"
#include "etude/optim/named_optimizer.hpp"
#include "etude/trainer_control.hpp"

namespace etude::inline v0 {

/// The steps that the optimizers and their schedules make in one update of the weights.
template <class Events>
class OptimizerSteps {
 public:
  explicit OptimizerSteps(Events& events) : events_(events), core_(events.core()) {}

  void begin() {
    for (auto& each : core_.optimizers) each.has_stepped = false;
  }

  /// Whether an optimizer takes part in the step under way.
  bool is_due(std::size_t optimizer) const {
    return core_.state.global_step % core_.optimizers[optimizer].every == 0;
  }
  std::size_t first_due() const {
    std::size_t i = 0;
    while (!is_due(i)) ++i;
    return i;
  }
  /// Whether any has made its step.
  bool has_stepped() const {
    return std::ranges::any_of(core_.optimizers, [](const auto& each) { return each.has_stepped; });
  }
  /// Whether gradients of this update have overflowed, with fp16.
  bool has_overflowed() const { return has_overflowed_; }

  /// Makes the step of an optimizer whose gradients are complete, unless those of fp16 have overflowed, or
  /// `accepts(norm)` is false for their norm. `has_batches`: this process has contributed to them.
  template <class Accepts = bool (*)(const torch::Tensor&)>
  void step(
      std::size_t optimizer, bool has_batches, const Optimizer::Closure& closure = nullptr,
      Accepts accepts = [](const torch::Tensor&) { return true; }) {
    auto& each = core_.optimizers[optimizer];
    const OptimizerList::Turn turn(core_.optimizers, optimizer);
    const auto make = [&] {
      if (unscale(*each.optimizer, has_batches) && apply(each, closure, accepts)) return stepped(each);
      each.optimizer->zero_grad();
    };
    // Once another has made its step, a stop comes true after those of all.
    has_stepped() ? stop_later(core_.control, make) : make();
  }

  /// Clips, and lets the optimizer make its step if the norm of its gradients is accepted; returns whether it
  /// is.
  template <class Accepts>
  bool apply(NamedOptimizer& each, const Optimizer::Closure& closure, Accepts accepts) {
    auto& optimizer = *each.optimizer;
    const double max_norm = each.max_grad_norm.value_or(core_.args.max_grad_norm),
                 max_value = each.max_grad_value.value_or(core_.args.max_grad_value);
    events_.raise(GradientsComplete{core_.context()});
    torch::Tensor norm;
    if (max_value > 0) {
      norm = optimizer.grad_norm();
      optimizer.clip_grad_value(max_value);
      if (max_norm > 0) optimizer.clip_grad_norm(max_norm);
    } else if (max_norm > 0) {
      norm = gradients_are_seen ? optimizer.clip_grad_norm(max_norm)
                                : optimizer.clip_grad_norm_in_step(max_norm);
    } else {
      norm = optimizer.grad_norm();
    }
    core_.log_window.set_grad_norm(norm, each.name);
    if (!accepts(norm)) return false;
    events_.raise(GradientsClipped{core_.context(), norm});
    events_.raise(PreOptimizerStep{core_.context()});
    begin_update(each);
    optimizer.step(closure);
    return true;
  }

  /// An optimizer is about to change the weights.
  void begin_update(NamedOptimizer& each) {
    core_.log_window.set_learning_rate(each.lr_scheduler->get_last_lr(), each.name);
    check_learning_rates();
    core_.updating = true;
  }

  /// An optimizer has made its step.
  void stepped(NamedOptimizer& each) {
    each.has_stepped = true;
    stop_later(core_.control, [&] { events_.raise(OptimizerStep{core_.context()}); });
  }

  /// Computes the scale of the next step's losses, and lets the schedules of the optimizers that have made a
  /// step make theirs.
  void finish() {
    end_scaling();
    for (std::size_t i = 0; i < core_.optimizers.size(); ++i) {
      auto& each = core_.optimizers[i];
      if (!each.has_stepped) continue;
      const OptimizerList::Turn turn(core_.optimizers, i);
      each.lr_scheduler->step();
      stop_later(core_.control, [&] {
        events_.raise(SchedulerStep{core_.context(), each.lr_scheduler->get_last_lr()});
      });
    }
    core_.optimizers.zero_grad();
  }

  /// An invalid rate would ruin all weights, and a checkpoint that holds it can't be resumed.
  void check_learning_rates() const {
    const auto& groups = core_.optimizers.current()->param_groups();
    for (std::size_t i = 0; i < groups.size(); ++i) {
      const double rate = groups[i].lr;
      if (rate >= 0 && rate <= std::numeric_limits<double>::max()) continue;
      throw ArgumentError(
          fmt::format("the learning rate of parameter group {} is {} for step {}: must be at least 0 and "
                      "finite; the lr_scheduler gives it, or a callback has set it",
                      i, detail::without_sign_of_nan(rate), core_.state.global_step + 1));
    }
  }

 private:
  /// Whether a handler may look at the gradients between clipping and the next `zero_grad`.
  static constexpr bool gradients_are_seen =
      Events::template is_heard<GradientsClipped>() || Events::template is_heard<PreOptimizerStep>() ||
      Events::template is_heard<OptimizerStep>() || Events::template is_heard<SchedulerStep>();

  /// Divides the gradients of fp16 by the scale of the loss, and returns whether they are finite.
  bool unscale(Optimizer& optimizer, bool has_batches) {
    if (!core_.scaler) return true;
    if (has_batches && !core_.scaler->has_scaled())
      throw Error(
          "fp16 is true, but training_step hasn't scaled the loss: it must call the trainer's "
          "backward(loss) instead of loss.backward()");
    const bool is_finite = core_.scaler->unscale(optimizer);
    has_overflowed_ |= !is_finite;
    return is_finite;
  }

  /// Computes the scale of the next step's losses.
  void end_scaling() {
    if (!core_.scaler) return;
    core_.scaler->update();
    constexpr double smallest = 1e-4;  // as in fairseq
    if (std::exchange(has_overflowed_, false) && core_.scaler->get_scale() < smallest)
      core_.control.request_stop(fmt::format(
          "with fp16, the gradients after step {} aren't finite even with a loss scaled by {:.2g}",
          core_.state.global_step, core_.scaler->get_scale()));
  }

  Events& events_;
  TrainerCore& core_;
  bool has_overflowed_ = false;
};

}  // namespace etude::inline v0
