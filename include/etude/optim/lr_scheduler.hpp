#pragma once

#include <torch/optim/schedulers/lr_scheduler.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/optim/metric_schedules.hpp"
#include "etude/optim/optimizer.hpp"
#include "etude/optim/schedule.hpp"

namespace etude::inline v0 {

/// Sets the learning rates of an optimizer's groups. The optimizer must outlive it.
class LRScheduler {
 public:
  LRScheduler(const LRScheduler&) = delete;
  LRScheduler& operator=(const LRScheduler&) = delete;
  virtual ~LRScheduler();

  /// Called after each update. Schedulers that follow a metric don't change the learning rates here.
  void step();

  /// Called after each evaluation. Schedulers that don't follow a metric don't change the learning rates
  /// here.
  void step(double metric) { on_metric(metric); }

  /// True if `step(metric)` changes the learning rates.
  virtual bool needs_metric() const;

  /// The number of calls of `step()` so far.
  std::int64_t step_count() const { return step_count_; }

  /// The first group's learning rate, which the next update will use.
  double get_last_lr() { return optimizer_->param_groups().front().lr; }

  /// Everything that `load_state` needs to continue from here, including learning rates.
  SchedulerState state();

  /// Continues from the `state` of a scheduler of the same kind. Call it on a new scheduler.
  ///
  /// With `rates_are_new`, the user has changed the schedule (its initial rate, type, options or length).
  /// Then only the position is restored: the rates become the ones that this scheduler reaches after the same
  /// number of steps from the groups' initial rates. A scheduler that follows a metric keeps the groups'
  /// current rates if its metric history can be restored, and otherwise starts over with the initial ones.
  ///
  /// Throws CheckpointError for invalid numbers and, unless `rates_are_new`, for the state of another kind of
  /// scheduler or a different number of groups; nothing is changed in that case.
  void load_state(const SchedulerState& state, bool rates_are_new = false);

  /// Continues as if `step()` had been called this many times, for checkpoints without scheduler state.
  /// Throws ArgumentError for a negative number.
  void fast_forward(std::int64_t steps);

 protected:
  explicit LRScheduler(Optimizer& optimizer) : optimizer_(&optimizer) {}

  virtual void on_step();
  virtual void on_metric(double metric);

  /// The state besides the step count and learning rates.
  virtual SchedulerState own_state() const;
  /// Restores that state, from a scheduler that had made `steps` steps; the learning rates are set
  /// afterwards. Throws CheckpointError, before any change, for unknown entries.
  virtual void load_own_state(const SchedulerState& state, std::int64_t steps);

  /// Sets the learning rates to their values after `steps` steps. `state` is the saved state, perhaps from
  /// another kind of scheduler. `step_count` is set afterwards.
  virtual void renew(const SchedulerState& state, std::int64_t steps);

  /// Equivalent to this many calls of `step()`.
  virtual void skip(std::int64_t steps);

  void start_from_initial_rates();

  void set_step_count(std::int64_t steps) { step_count_ = steps; }

  Optimizer& optimizer() const { return *optimizer_; }

 private:
  Optimizer* optimizer_;
  std::int64_t step_count_ = 0;
};

/// Sets each group's learning rate, and its momentum if the schedule has one, to the schedule's values from
/// step 0 on: with a Schedule, lr = initial_lr * schedule(step).
class LambdaLR : public LRScheduler {
 public:
  LambdaLR(Optimizer& optimizer, Schedule schedule);
  LambdaLR(Optimizer& optimizer, GroupSchedule schedule);

 protected:
  void on_step() override;

  void load_own_state(const SchedulerState& state, std::int64_t steps) override;

  void renew(const SchedulerState&, std::int64_t steps) override;

  void skip(std::int64_t steps) override;

 private:
  void set(std::int64_t step);
  void set_momentum(std::int64_t step);

  GroupSchedule schedule_;
};

/// ReduceLROnPlateau or GreedyLR applied to an optimizer.
template <typename Rule>
class MetricLR : public LRScheduler {
 public:
  MetricLR(Optimizer& optimizer, Rule rule)
      : LRScheduler(optimizer), fresh_(std::move(rule)), rule_(fresh_) {}

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

  void renew(const SchedulerState& state, std::int64_t) override {
    try {
      rule_.load_state(state);
    } catch (const CheckpointError&) {
      rule_ = fresh_;
      start_from_initial_rates();
    }
  }

  void skip(std::int64_t steps) override { set_step_count(step_count() + steps); }

 private:
  Rule fresh_;  // in its initial state
  Rule rule_;
};

/// Wraps a torch scheduler, or a user's subclass of one, for the torch optimizer in `optimizer` (a
/// TorchOptimizer). A torch scheduler can't be serialized, so `load_state` steps a new one as often as the
/// saved one had been stepped.
class TorchLRScheduler : public LRScheduler {
 public:
  TorchLRScheduler(Optimizer& optimizer, std::shared_ptr<torch::optim::LRScheduler> scheduler);

 protected:
  void on_step() override;

  void load_own_state(const SchedulerState& state, std::int64_t steps) override;

 private:
  std::shared_ptr<torch::optim::LRScheduler> scheduler_;
};

}  // namespace etude::inline v0
