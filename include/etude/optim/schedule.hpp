#pragma once

#include <cstdint>
#include <functional>
#include <utility>

namespace etude::inline v0 {

/// The factor for the initial learning rate at a step; 0 is the first update.
using Schedule = std::function<double(std::int64_t step)>;

/// The learning rate of a parameter group at each step, and perhaps its momentum. A Schedule is one.
struct GroupSchedule {
  using Rate = std::function<double(std::int64_t step, double initial_lr)>;
  using Momentum = std::function<double(std::int64_t step)>;

  GroupSchedule(Schedule factor)
      : lr([factor = std::move(factor)](std::int64_t step, double initial_lr) {
          return initial_lr * factor(step);
        }) {}
  GroupSchedule(Rate rate, Momentum own_momentum) : lr(std::move(rate)), momentum(std::move(own_momentum)) {}

  Rate lr;
  Momentum momentum;  ///< Empty if the schedule doesn't change the momentum.
};

}  // namespace etude::inline v0
