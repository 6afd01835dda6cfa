#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

namespace etude::inline v0 {

/// The factor for the initial learning rate at a step; 0 is the first update.
using Schedule = std::function<double(std::int64_t step)>;

/// The learning rate of a parameter group at each step, and perhaps its momentum. A Schedule converts to one.
struct GroupSchedule {
  using Rate = std::function<double(std::int64_t step, double initial_lr)>;
  using Momentum = std::function<double(std::int64_t step)>;

  /// Calls `factor` once in each step, for all groups.
  GroupSchedule(Schedule factor)
      : lr([factor = std::move(factor), last = std::int64_t{-1}, now = 0.0](std::int64_t step,
                                                                            double initial_lr) mutable {
          if (step != last) now = factor(last = step);
          return initial_lr * now;
        }) {}
  GroupSchedule(Rate rate, Momentum own_momentum) : lr(std::move(rate)), momentum(std::move(own_momentum)) {}

  Rate lr;
  Momentum momentum;  ///< Empty if the schedule doesn't change the momentum.
};

/// The training that a schedule is made for.
struct SchedulePlan {
  std::int64_t warmup_steps = 0;
  std::int64_t total_steps = 0;               ///< update steps of the training, warmup included
  double learning_rate = 0;                   ///< initial learning rate of the first parameter group
  std::string where = "lr_scheduler_kwargs";  ///< beginning of error messages
};

}  // namespace etude::inline v0
