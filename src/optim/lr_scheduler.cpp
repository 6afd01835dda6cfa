#include "etude/optim/lr_scheduler.hpp"

#include <fmt/format.h>
#include <torch/optim/schedulers/lr_scheduler.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/optim/scheduler_state.hpp"

namespace etude::inline v0 {

LRScheduler::~LRScheduler() = default;

bool LRScheduler::needs_metric() const { return false; }

SchedulerState LRScheduler::state() {
  SchedulerState result = own_state();
  result["step_count"] = {static_cast<double>(step_count_)};
  for (const ParamGroup& group : optimizer_->param_groups()) {
    result["lr"].push_back(group.lr);
    result["initial_lr"].push_back(group.initial_lr);
  }
  return result;
}

void LRScheduler::load_state(const SchedulerState& state, bool rates_are_new) {
  SchedulerState own = state;
  for (const char* name : {"step_count", "lr", "initial_lr"}) own.erase(name);
  std::int64_t steps = 0;
  detail::load_number(state, "step_count", steps);
  if (rates_are_new) {
    renew(own, steps);
    step_count_ = steps;
    return;
  }
  const std::size_t groups = optimizer_->param_groups().size();
  const auto lr = detail::rates_in(state, "lr", groups);
  const auto initial_lr = detail::rates_in(state, "initial_lr", groups);
  load_own_state(own, steps);
  step_count_ = steps;
  for (std::size_t i = 0; i < groups; ++i) optimizer_->set_learning_rates(i, lr[i], initial_lr[i]);
}

void LRScheduler::fast_forward(std::int64_t steps) {
  if (steps < 0) throw ArgumentError(fmt::format("steps is {}: must be at least 0", steps));
  skip(steps);
}

void LRScheduler::on_step() {}

void LRScheduler::on_metric(double) {}

SchedulerState LRScheduler::own_state() const { return {}; }

void LRScheduler::load_own_state(const SchedulerState& state, std::int64_t /*steps*/) {
  detail::check_names(state, own_state());
}

void LRScheduler::renew(const SchedulerState& /*state*/, std::int64_t steps) {
  start_from_initial_rates();
  if (steps > step_count_) skip(steps - step_count_);
}

void LRScheduler::skip(std::int64_t steps) {
  for (; steps > 0; --steps) step();
}

void LRScheduler::start_from_initial_rates() {
  std::vector<ParamGroup>& groups = optimizer_->param_groups();
  for (std::size_t i = 0; i < groups.size(); ++i)
    optimizer_->set_learning_rates(i, groups[i].initial_lr, groups[i].initial_lr);
}

LambdaLR::LambdaLR(Optimizer& optimizer, Schedule schedule)
    : LambdaLR(optimizer, GroupSchedule(std::move(schedule))) {}

LambdaLR::LambdaLR(Optimizer& optimizer, GroupSchedule schedule)
    : LRScheduler(optimizer), schedule_(std::move(schedule)) {
  set(0);
}

void LambdaLR::on_step() { set(step_count()); }

void LambdaLR::load_own_state(const SchedulerState& state, std::int64_t steps) {
  LRScheduler::load_own_state(state, steps);
  set_momentum(steps);
}

void LambdaLR::renew(const SchedulerState&, std::int64_t steps) { set(steps); }

void LambdaLR::skip(std::int64_t steps) {
  set(step_count() + steps);
  set_step_count(step_count() + steps);
}

void LambdaLR::set(std::int64_t step) {
  for (ParamGroup& group : optimizer().param_groups()) group.lr = schedule_.lr(step, group.initial_lr);
  set_momentum(step);
}

void LambdaLR::set_momentum(std::int64_t step) {
  if (!schedule_.momentum) return;
  const double momentum = schedule_.momentum(step);
  for (ParamGroup& group : optimizer().param_groups()) group.momentum = momentum;
}

TorchLRScheduler::TorchLRScheduler(Optimizer& optimizer, std::shared_ptr<torch::optim::LRScheduler> scheduler)
    : LRScheduler(optimizer), scheduler_(std::move(scheduler)) {
  if (!scheduler_) throw ArgumentError("the lr_scheduler is null");
}

void TorchLRScheduler::on_step() { scheduler_->step(); }

void TorchLRScheduler::load_own_state(const SchedulerState& state, std::int64_t steps) {
  LRScheduler::load_own_state(state, steps);
  start_from_initial_rates();  // for schedulers that compute each rate from the previous one
  for (std::int64_t i = step_count(); i < steps; ++i) scheduler_->step();
  optimizer().param_groups();  // reads the rates that these steps set, so that later changes win
}

void LRScheduler::step() {
  ++step_count_;
  on_step();
}

}  // namespace etude::inline v0
