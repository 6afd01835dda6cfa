#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "etude/optim/schedule.hpp"
#include "etude/reflect/enum.hpp"
#include "etude/reflect/struct.hpp"

/// The schedulers of torch.optim.lr_scheduler, with its option names and defaults. Steps are update steps,
/// counted from 0. They begin after the warmup, if there is one. `schedule` throws ArgumentError for invalid
/// options.
namespace etude::inline v0 {

/// Multiplies the learning rate by `gamma` every `step_size` steps.
struct StepLROptions {
  ETUDE_STRUCT(StepLROptions,
               (std::int64_t, step_size, "steps from one change to the next; required" | at_least(1), 0),
               (double, gamma, "factor of each change" | at_least(0), 0.1));
  Schedule schedule(const SchedulePlan& plan) const;
};

/// Multiplies the learning rate by `gamma` at each of the milestones.
struct MultiStepLROptions {
  ETUDE_STRUCT(MultiStepLROptions,
               (std::vector<std::int64_t>, milestones,
                "steps at which the rate changes, in any order; required" | not_empty()),
               (double, gamma, "factor of each change" | at_least(0), 0.1));
  Schedule schedule(const SchedulePlan& plan) const;
};

/// Multiplies the learning rate by `factor` for the first steps.
struct ConstantLROptions {
  ETUDE_STRUCT(ConstantLROptions, (double, factor, "factor during the first steps" | between(0, 1), 1.0 / 3),
               (std::int64_t, total_iters, "number of these steps" | at_least(0), 5));
  Schedule schedule(const SchedulePlan& plan) const;
};

/// Changes the learning rate linearly over the first steps, from one factor to another, which it keeps.
struct LinearLROptions {
  ETUDE_STRUCT(LinearLROptions, (double, start_factor, "factor at the start" | above(0).at_most(1), 1.0 / 3),
               (double, end_factor, "factor at the end" | between(0, 1), 1.0),
               (std::int64_t, total_iters, "steps from the start to the end" | at_least(1), 5));
  Schedule schedule(const SchedulePlan& plan) const;
};

/// Multiplies the learning rate by `gamma` in each step.
struct ExponentialLROptions {
  ETUDE_STRUCT(ExponentialLROptions, (double, gamma, "factor of each step; required" | above(0), 0.0));
  Schedule schedule(const SchedulePlan& plan) const;
};

/// Falls to zero like a power of the remaining steps.
struct PolynomialLROptions {
  ETUDE_STRUCT(PolynomialLROptions, (std::int64_t, total_iters, "steps until zero" | at_least(1), 5),
               (double, power, "exponent of the fraction of remaining steps" | at_least(0), 1.0));
  Schedule schedule(const SchedulePlan& plan) const;
};

/// Swings along a cosine between the initial learning rate and `eta_min`.
struct CosineAnnealingLROptions {
  ETUDE_STRUCT(CosineAnnealingLROptions,
               (std::int64_t, T_max, "steps from the initial rate to eta_min; required" | at_least(1), 0),
               (double, eta_min, "minimum learning rate" | at_least(0), 0.0));
  GroupSchedule schedule(const SchedulePlan& plan) const;
};

/// Falls along a cosine from the initial learning rate to `eta_min`, again and again.
struct CosineAnnealingWarmRestartsOptions {
  ETUDE_STRUCT(CosineAnnealingWarmRestartsOptions,
               (std::int64_t, T_0, "steps of the first fall; required" | at_least(1), 0),
               (std::int64_t, T_mult, "factor by which each fall is longer than the last" | at_least(1), 1),
               (double, eta_min, "minimum learning rate" | at_least(0), 0.0));
  GroupSchedule schedule(const SchedulePlan& plan) const;
};

ETUDE_ENUM(CyclicMode, triangular, triangular2, exp_range);

/// Rises from `base_lr` to `max_lr` and falls back, again and again, while the momentum, or the first beta,
/// does the opposite (arXiv:1506.01186). A `scale_fn` isn't supported: use a function of the step.
struct CyclicLROptions {
  ETUDE_STRUCT(
      CyclicLROptions,
      (std::optional<double>, base_lr, "lowest learning rate, for all groups; required" | at_least(0)),
      (std::optional<double>, max_lr,
       "highest learning rate, for all groups; unset means the initial one of each group" | at_least(0)),
      (std::int64_t, step_size_up, "steps of a rise" | at_least(1), 2000),
      (std::optional<std::int64_t>, step_size_down,
       "steps of a fall; unset means step_size_up" | at_least(0)),
      (CyclicMode, mode,
       "triangular keeps the height of the cycles, triangular2 halves it after each cycle, "
       "exp_range multiplies it by gamma in each step",
       CyclicMode::triangular),
      (double, gamma, "factor of exp_range" | at_least(0), 1.0),
      (bool, cycle_momentum, "also change the momentum", true),
      (double, base_momentum, "momentum at the highest learning rate" | at_least(0).below(1), 0.8),
      (double, max_momentum, "momentum at the lowest learning rate" | at_least(0).below(1), 0.9));
  GroupSchedule schedule(const SchedulePlan& plan) const;
};

/// Rises once to `max_lr`, and falls to far below the rate at the start, while the momentum, or the first
/// beta, falls and rises (arXiv:1708.07120). The last rate is kept.
struct OneCycleLROptions {
  static constexpr std::string_view strategies[] = {"cos", "linear"};
  ETUDE_STRUCT(
      OneCycleLROptions,
      (std::optional<double>, max_lr,
       "highest learning rate, for all groups; unset means the initial one of each group" | at_least(0)),
      (std::optional<std::int64_t>, total_steps,
       "steps of the cycle; unset means those of the training" | at_least(1)),
      (double, pct_start, "fraction of the steps in which the rate rises" | between(0, 1), 0.3),
      (std::string, anneal_strategy, "shape of rises and falls: cos or linear" | any_of(strategies), "cos"),
      (bool, cycle_momentum, "also change the momentum", true),
      (double, base_momentum, "momentum at the highest learning rate" | at_least(0).below(1), 0.85),
      (double, max_momentum, "momentum at both ends" | at_least(0).below(1), 0.95),
      (double, div_factor, "max_lr divided by the rate at the start" | above(0), 25.0),
      (double, final_div_factor, "rate at the start divided by the one at the end" | above(0), 1e4),
      (bool, three_phase, "fall to the rate at the start as fast as it rose, and then to the rate at the end",
       false));
  GroupSchedule schedule(const SchedulePlan& plan) const;
  bool needs_total_steps() const;
};

/// Runs one schedule after another. `schedulers` are JSON objects with a `type`, the options of that type,
/// and perhaps `warmup_steps`; none may follow a metric. A milestone is the step at which the next schedule
/// begins, at its step 0. A type that depends on the length of the training gets the distance to the next
/// milestone in its place. A schedule that doesn't change the momentum keeps the last momentum of the one
/// before; if none before changes it, it takes the first momentum of the next one that does.
struct SequentialLROptions {
  ETUDE_STRUCT(SequentialLROptions,
               (std::vector<nlohmann::json>, schedulers, "schedules, in their order; required" | not_empty()),
               (std::vector<std::int64_t>, milestones,
                "steps at which the second, third, ... begin, in rising order"));
  GroupSchedule schedule(const SchedulePlan& plan) const;
  bool needs_total_steps() const;
};

/// Runs several schedules at once: each one gets the learning rate of the one before as its initial rate, so
/// factors are multiplied. `schedulers` are those of `sequential_lr`. If several change the momentum, the
/// last one decides.
struct ChainedSchedulerOptions {
  ETUDE_STRUCT(ChainedSchedulerOptions, (std::vector<nlohmann::json>, schedulers,
                                         "schedules, in their order; required" | not_empty()));
  GroupSchedule schedule(const SchedulePlan& plan) const;
  bool needs_total_steps() const;
};

}  // namespace etude::inline v0
