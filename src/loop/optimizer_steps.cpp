#include "optimizer_steps.hpp"

#include <fmt/format.h>

#include <limits>
#include <utility>

#include "etude/base/error.hpp"
#include "etude/metrics/metrics.hpp"
#include "etude/trainer_control.hpp"

namespace etude::inline v0 {

void OptimizerSteps::begin() {
  for (auto& each : core_.optimizers) each.has_stepped = false;
}

bool OptimizerSteps::is_due(std::size_t optimizer) const {
  return core_.state.global_step % core_.optimizers[optimizer].every == 0;
}

std::size_t OptimizerSteps::first_due() const {
  std::size_t i = 0;
  while (!is_due(i)) ++i;
  return i;
}

bool OptimizerSteps::has_stepped() const {
  return std::ranges::any_of(core_.optimizers, [](const auto& each) { return each.has_stepped; });
}

bool OptimizerSteps::unscale(Optimizer& optimizer, bool has_batches) {
  if (!core_.scaler) return true;
  if (has_batches && !core_.scaler->has_scaled())
    throw Error(
        "fp16 is true, but training_step hasn't scaled the loss: it must call the trainer's "
        "backward(loss) instead of loss.backward()");
  const bool is_finite = core_.scaler->unscale(optimizer);
  has_overflowed_ |= !is_finite;
  return is_finite;
}

void OptimizerSteps::end_scaling() {
  if (!core_.scaler) return;
  core_.scaler->update();
  constexpr double smallest = 1e-4;  // as in fairseq
  if (std::exchange(has_overflowed_, false) && core_.scaler->get_scale() < smallest)
    core_.control.request_stop(
        fmt::format("with fp16, the gradients after step {} aren't finite even with a loss scaled by {:.2g}",
                    core_.state.global_step, core_.scaler->get_scale()));
}

void OptimizerSteps::step(std::size_t optimizer, bool has_batches, const Optimizer::Closure& closure,
                          Accepts accepts) {
  auto& each = core_.optimizers[optimizer];
  const OptimizerList::Turn turn(core_.optimizers, optimizer);
  const auto make = [&] {
    if (unscale(*each.optimizer, has_batches) && apply(each, closure, accepts)) return stepped(each);
    each.optimizer->zero_grad();
  };
  // Once another has made its step, a stop comes true after those of all.
  has_stepped() ? stop_later(core_.control, make) : make();
}

bool OptimizerSteps::apply(NamedOptimizer& each, const Optimizer::Closure& closure, Accepts accepts) {
  auto& optimizer = *each.optimizer;
  const double max_norm = each.max_grad_norm.value_or(core_.args.max_grad_norm),
               max_value = each.max_grad_value.value_or(core_.args.max_grad_value);
  events_.raise<GradientsComplete>();
  torch::Tensor norm;
  if (max_value > 0) {
    norm = optimizer.grad_norm();
    optimizer.clip_grad_value(max_value);
    if (max_norm > 0) optimizer.clip_grad_norm(max_norm);
  } else if (max_norm > 0) {
    norm = gradients_are_seen() ? optimizer.clip_grad_norm(max_norm)
                                : optimizer.clip_grad_norm_in_step(max_norm);
  } else {
    norm = optimizer.grad_norm();
  }
  core_.log_window.set_grad_norm(norm, each.name);
  if (!accepts(norm)) return false;
  events_.raise<GradientsClipped>(norm);
  events_.raise<PreOptimizerStep>();
  begin_update(each);
  optimizer.step(closure);
  return true;
}

void OptimizerSteps::begin_update(NamedOptimizer& each) {
  core_.log_window.set_learning_rate(each.lr_scheduler->get_last_lr(), each.name);
  check_learning_rates();
  core_.updating = true;
}

void OptimizerSteps::stepped(NamedOptimizer& each) {
  each.has_stepped = true;
  stop_later(core_.control, [&] { events_.raise<OptimizerStep>(); });
}

void OptimizerSteps::finish() {
  end_scaling();
  for (std::size_t i = 0; i < core_.optimizers.size(); ++i) {
    auto& each = core_.optimizers[i];
    if (!each.has_stepped) continue;
    const OptimizerList::Turn turn(core_.optimizers, i);
    each.lr_scheduler->step();
    if (events_.hears<SchedulerStep>())
      stop_later(core_.control, [&] { events_.raise<SchedulerStep>(each.lr_scheduler->get_last_lr()); });
  }
  core_.optimizers.zero_grad();
}

void OptimizerSteps::check_learning_rates() const {
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

bool OptimizerSteps::gradients_are_seen() const {
  return events_.hears<GradientsClipped>() || events_.hears<PreOptimizerStep>() ||
         events_.hears<OptimizerStep>() || events_.hears<SchedulerStep>();
}

}  // namespace etude::inline v0
