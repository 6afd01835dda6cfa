#include "optimizer_steps.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "etude/base/error.hpp"
#include "etude/loop/trainer_methods.hpp"
#include "etude/metrics/metrics.hpp"
#include "etude/model/loss.hpp"
#include "etude/trainer_control.hpp"

namespace etude::inline v0 {

void OptimizerSteps::begin() {
  for (auto& each : core_.optimizers) each.has_stepped = false;
  non_finite_.begin_step();
}

void OptimizerSteps::begin_gradients() {
  if (non_finite_.is_on()) non_finite_.begin_group();
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

void OptimizerSteps::step(std::size_t optimizer, const Optimizer::Closure& closure) {
  if (has_rejected()) return;
  auto& each = core_.optimizers[optimizer];
  const OptimizerList::Turn turn(core_.optimizers, optimizer);
  const auto make = [&] {
    if (unscale(*each.optimizer) &&
        clip_and_step(each, closure, [&](const torch::Tensor& norm) { return accepts(norm); }))
      return end_step(each);
    each.optimizer->zero_grad();
  };
  // Once another optimizer has made its step, a stop takes effect after the steps of all.
  has_stepped() ? stop_later(core_.control, make) : make();
}

bool OptimizerSteps::unscale(Optimizer& optimizer) {
  if (!core_.scaler) return true;
  if (!batches_.empty() && !core_.scaler->has_scaled())
    throw Error(
        "fp16 is true, but training_step hasn't scaled the loss: it must call the trainer's "
        "backward(loss) instead of loss.backward()");
  const bool is_finite = core_.scaler->unscale(optimizer);
  has_overflowed_ |= !is_finite;
  return is_finite;
}

bool OptimizerSteps::clip_and_step(NamedOptimizer& each, const Optimizer::Closure& closure,
                                   Accepts is_accepted) {
  events_.raise<GradientsComplete>();
  const auto norm = clip(each);
  core_.log_window.set_grad_norm(norm, each.name);
  if (!is_accepted(norm)) return false;
  events_.raise<GradientsClipped>(norm);
  events_.raise<PreOptimizerStep>();
  begin_step(each);
  each.optimizer->step(closure);
  return true;
}

torch::Tensor OptimizerSteps::clip(NamedOptimizer& each) {
  auto& optimizer = *each.optimizer;
  const double max_norm = each.max_grad_norm.value_or(core_.args.max_grad_norm),
               max_value = each.max_grad_value.value_or(core_.args.max_grad_value);
  if (max_value > 0) {
    auto norm = optimizer.grad_norm();
    optimizer.clip_grad_value(max_value);
    if (max_norm > 0) optimizer.clip_grad_norm(max_norm);
    return norm;
  }
  if (max_norm <= 0) return optimizer.grad_norm();
  return gradients_are_seen() ? optimizer.clip_grad_norm(max_norm)
                              : optimizer.clip_grad_norm_in_step(max_norm);
}

bool OptimizerSteps::gradients_are_seen() const {
  return events_.hears<GradientsClipped>() || events_.hears<PreOptimizerStep>() ||
         events_.hears<OptimizerStep>() || events_.hears<SchedulerStep>();
}

bool OptimizerSteps::accepts(const torch::Tensor& grad_norm) {
  if (!non_finite_.is_on() || non_finite_.accepts(grad_norm)) return true;
  const auto compute_loss = [&](const Batch& batch) {
    auto [loss, outputs, counts_items, logs] =
        detail::compute_loss_in_precision(events_, batch, core_.group.num_items());
    const auto divisor = core_.loss_divisor(batch.labels);
    return divisor && divisor->read() == 0 ? detail::zero_loss(loss, outputs) : loss;
  };
  std::optional<NonFiniteUpdates::ComputeLoss> known_loss;
  if (core_.step_sharing() != StepSharing::by_hand && !core_.losses_are_given) known_loss = compute_loss;
  non_finite_.reject(batches_.all(), known_loss);
  return false;
}

void OptimizerSteps::begin_step(NamedOptimizer& each) {
  core_.log_window.set_learning_rate(each.lr_scheduler->get_last_lr(), each.name);
  check_learning_rates();
  core_.updating = true;
}

void OptimizerSteps::end_step(NamedOptimizer& each) {
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
  if (has_stepped()) non_finite_.end_step();
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

}  // namespace etude::inline v0
