#pragma once

#include <torch/optim/schedulers/lr_scheduler.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/base/linkage.hpp"
#include "etude/optim/metric_schedules.hpp"
#include "etude/optim/optimizer.hpp"
#include "etude/optim/schedules.hpp"

namespace etude {

/// Sets the learning rates of an optimizer's groups, which must outlive it.
class LRScheduler {
 public:
  LRScheduler(const LRScheduler&) = delete;
  LRScheduler& operator=(const LRScheduler&) = delete;
  ETUDE_INLINE virtual ~LRScheduler();

  /// After each update. A scheduler that follows a metric leaves the learning rates alone here.
  void step() {
    ++step_count_;
    on_step();
  }

  /// After each evaluation. A scheduler that follows no metric leaves the learning rates alone here.
  void step(double metric) { on_metric(metric); }

  /// Whether it is `step(metric)` that changes the learning rates.
  ETUDE_INLINE virtual bool needs_metric() const;

  /// Calls of `step()` so far.
  std::int64_t step_count() const { return step_count_; }

  /// The first group's learning rate, which the next update will use.
  double get_last_lr() { return optimizer_->param_groups().front().lr; }

  /// What `load_state` needs to go on from here, learning rates included.
  SchedulerState state();

  /// Goes on from what `state` of a scheduler of this kind gave. For a scheduler that is fresh.
  ///
  /// With `rates_are_new`, a person has changed what the learning rates are made of (the initial rate, the
  /// kind of schedule, its options or length). Then only the place is taken over: the rates become those that
  /// this scheduler gives after as many steps, from the initial rates that the groups have. One that follows
  /// a metric goes on with the rates that the groups have if what it knows of the metric fits, and starts
  /// anew from the initial ones if it doesn't.
  ///
  /// Throws CheckpointError for numbers that can't be, and unless `rates_are_new`, for a state of another
  /// kind of scheduler or another number of groups; nothing is changed then.
  void load_state(const SchedulerState& state, bool rates_are_new = false);

  /// Goes on as if `step()` had been called so often, for a checkpoint that says nothing of the scheduler.
  /// Throws ArgumentError for a number below 0.
  void fast_forward(std::int64_t steps);

 protected:
  explicit LRScheduler(Optimizer& optimizer) : optimizer_(&optimizer) {}

  ETUDE_INLINE virtual void on_step();
  ETUDE_INLINE virtual void on_metric(double metric);

  /// What there is to store beside the steps and the learning rates.
  ETUDE_INLINE virtual SchedulerState own_state() const;
  /// Takes that over, of a scheduler that was stepped `steps` times; the learning rates are set afterwards.
  /// Throws CheckpointError, before it changes anything, for what it doesn't know.
  ETUDE_INLINE virtual void load_own_state(const SchedulerState& state, std::int64_t steps);

  /// Sets the learning rates to those after `steps` steps; `state`, perhaps of another kind of scheduler, is
  /// what another made of it. `step_count` is set afterwards.
  ETUDE_INLINE virtual void renew(const SchedulerState& state, std::int64_t steps);

  /// As so many calls of `step()`.
  ETUDE_INLINE virtual void skip(std::int64_t steps);

  void start_from_initial_rates();

  void set_step_count(std::int64_t steps) { step_count_ = steps; }

  Optimizer& optimizer() const { return *optimizer_; }

 private:
  Optimizer* optimizer_;
  std::int64_t step_count_ = 0;
};

/// lr = initial_lr * schedule(step), in each group, from step 0 on.
class LambdaLR : public LRScheduler {
 public:
  LambdaLR(Optimizer& optimizer, Schedule schedule);

 protected:
  ETUDE_INLINE void on_step() override;

  ETUDE_INLINE void renew(const SchedulerState&, std::int64_t steps) override;

  ETUDE_INLINE void skip(std::int64_t steps) override;

 private:
  void set(std::int64_t step);

  Schedule schedule_;
};

/// ReduceLROnPlateau or GreedyLR over an optimizer.
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
  Rule fresh_;  // as it was made
  Rule rule_;
};

/// A scheduler of torch's, or of the user's that derives from it, over the torch optimizer inside `optimizer`
/// (a TorchOptimizer). Since it can't be stored, `load_state` steps a fresh one as often as the old.
class TorchLRScheduler : public LRScheduler {
 public:
  TorchLRScheduler(Optimizer& optimizer, std::shared_ptr<torch::optim::LRScheduler> scheduler);

 protected:
  ETUDE_INLINE void on_step() override;

  ETUDE_INLINE void load_own_state(const SchedulerState& state, std::int64_t steps) override;

 private:
  std::shared_ptr<torch::optim::LRScheduler> scheduler_;
};

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/optim/impl/lr_scheduler.ipp"
#endif
