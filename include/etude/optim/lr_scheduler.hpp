#pragma once

#include <fmt/format.h>
#include <torch/optim/schedulers/lr_scheduler.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>
#include "etude/error.hpp"
#include "etude/optim/metric_schedules.hpp"
#include "etude/optim/optimizer.hpp"
#include "etude/optim/schedules.hpp"

namespace etude {

/// Sets the learning rates of an optimizer's groups, which must outlive it.
class LRScheduler {
 public:
  LRScheduler(const LRScheduler&) = delete;
  LRScheduler& operator=(const LRScheduler&) = delete;
  virtual ~LRScheduler() = default;

  /// After each update. A scheduler that follows a metric leaves the learning rates alone here.
  void step() {
    ++step_count_;
    on_step();
  }

  /// After each evaluation. A scheduler that follows no metric leaves the learning rates alone here.
  void step(double metric) { on_metric(metric); }

  /// Whether it is `step(metric)` that changes the learning rates.
  virtual bool needs_metric() const { return false; }

  /// Calls of `step()` so far.
  std::int64_t step_count() const { return step_count_; }

  /// The first group's learning rate, which the next update will use.
  double get_last_lr() { return optimizer_->param_groups().front().lr; }

  /// What `load_state` needs to go on from here, learning rates included.
  SchedulerState state() {
    SchedulerState result = own_state();
    result["step_count"] = {static_cast<double>(step_count_)};
    for (const ParamGroup& group : optimizer_->param_groups()) {
      result["lr"].push_back(group.lr);
      result["initial_lr"].push_back(group.initial_lr);
    }
    return result;
  }

  /// Throws CheckpointError for a state of another kind of scheduler or another number of groups.
  void load_state(const SchedulerState& state) {
    std::vector<ParamGroup>& groups = optimizer_->param_groups();
    const auto lr = detail::numbers_in(state, "lr", groups.size());
    const auto initial_lr = detail::numbers_in(state, "initial_lr", groups.size());
    std::int64_t steps = 0;
    detail::load_number(state, "step_count", steps);
    load_own_state(state, steps);
    step_count_ = steps;
    for (std::size_t i = 0; i < groups.size(); ++i) {
      groups[i].lr = lr[i];
      groups[i].initial_lr = initial_lr[i];
    }
  }

 protected:
  explicit LRScheduler(Optimizer& optimizer) : optimizer_(&optimizer) {}

  virtual void on_step() {}
  virtual void on_metric(double) {}
  virtual SchedulerState own_state() const { return {}; }
  virtual void load_own_state(const SchedulerState&, std::int64_t /*steps*/) {}

  Optimizer& optimizer() const { return *optimizer_; }

 private:
  Optimizer* optimizer_;
  std::int64_t step_count_ = 0;
};

/// lr = initial_lr * schedule(step), in each group, from step 0 on.
class LambdaLR : public LRScheduler {
 public:
  LambdaLR(Optimizer& optimizer, Schedule schedule) : LRScheduler(optimizer), schedule_(std::move(schedule)) {
    set(0);
  }

 protected:
  void on_step() override { set(step_count()); }

 private:
  void set(std::int64_t step) {
    const double factor = schedule_(step);
    for (ParamGroup& group : optimizer().param_groups()) group.lr = group.initial_lr * factor;
  }

  Schedule schedule_;
};

/// ReduceLROnPlateau or GreedyLR over an optimizer.
template <typename Rule>
class MetricLR : public LRScheduler {
 public:
  MetricLR(Optimizer& optimizer, Rule rule) : LRScheduler(optimizer), rule_(std::move(rule)) {}

  bool needs_metric() const override { return true; }

 protected:
  void on_metric(double metric) override {
    std::vector<double> lrs, initial_lrs;
    for (const ParamGroup& group : optimizer().param_groups()) {
      lrs.push_back(group.lr);
      initial_lrs.push_back(group.initial_lr);
    }
    if constexpr (requires { rule_.step(metric, lrs, initial_lrs); }) {
      rule_.step(metric, lrs, initial_lrs);
    } else {
      rule_.step(metric, lrs);
    }
    for (std::size_t i = 0; i < lrs.size(); ++i) optimizer().param_groups()[i].lr = lrs[i];
  }

  SchedulerState own_state() const override { return rule_.state(); }
  void load_own_state(const SchedulerState& state, std::int64_t) override { rule_.load_state(state); }

 private:
  Rule rule_;
};

/// A scheduler of torch's, or of the user's that derives from it, over the torch optimizer inside `optimizer`
/// (a TorchOptimizer). Since it can't be stored, `load_state` steps a fresh one as often as the old.
class TorchLRScheduler : public LRScheduler {
 public:
  TorchLRScheduler(Optimizer& optimizer, std::shared_ptr<torch::optim::LRScheduler> scheduler)
      : LRScheduler(optimizer), scheduler_(std::move(scheduler)) {
    if (!scheduler_) throw ArgumentError("the lr_scheduler is null");
  }

 protected:
  void on_step() override { scheduler_->step(); }

  void load_own_state(const SchedulerState&, std::int64_t steps) override {
    for (std::int64_t i = step_count(); i < steps; ++i) scheduler_->step();
    optimizer().param_groups();  // takes what these steps left, so that what is set next counts as later
  }

 private:
  std::shared_ptr<torch::optim::LRScheduler> scheduler_;
};

}  // namespace etude
