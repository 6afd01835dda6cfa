#include "etude/optim/schedules.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <optional>
#include <string>

#include "etude/base/counting.hpp"
#include "etude/base/error.hpp"
#include "etude/optim/schedule_options.hpp"

namespace etude::inline v0 {
namespace detail {

namespace {

double share(std::int64_t part, std::int64_t whole) {
  return static_cast<double>(part) / static_cast<double>(std::max<std::int64_t>(1, whole));
}

/// A cosine wave that starts at 1 and falls to 0 in half a cycle.
double cosine(double cycles, double progress) {
  return std::max(0.0, 0.5 * (1 + std::cos(2 * std::numbers::pi * cycles * progress)));
}

/// The completed fraction of the steps after the warmup.
double progress(const SchedulePlan& plan, std::int64_t step) {
  return share(step - plan.warmup_steps, plan.total_steps - plan.warmup_steps);
}

/// A linear warmup, then `after`.
template <typename After>
Schedule warmed_up(const SchedulePlan& plan, After after) {
  return [warmup = plan.warmup_steps, after](std::int64_t step) {
    return step < warmup ? share(step, warmup) : after(step);
  };
}

/// The minimum of the options as a fraction of the initial learning rate.
template <typename Options>
double least_rate(const Options& options, const SchedulePlan& plan) {
  if (options.min_lr.has_value() == options.min_lr_rate.has_value())
    throw ArgumentError(plan.where + ": exactly one of min_lr and min_lr_rate must be given");
  return options.min_lr ? *options.min_lr / plan.learning_rate : *options.min_lr_rate;
}

/// Rises from 0 to 1 as `progress` goes from 0 to 1.
double rise(const std::string& type, double progress) {
  if (type == "linear") return progress;
  if (type == "cosine") return 0.5 * (1 - std::cos(std::numbers::pi * progress));
  return 1 - std::sqrt(1 - progress);
}

/// Falls from 1 to 0 as `progress` goes from 0 to 1.
double fall(const std::string& type, double cycles, double progress) {
  if (type == "linear") return 1 - progress;
  if (type == "cosine") return cosine(cycles, progress);
  return 1 - std::sqrt(progress);
}

}  // namespace

}  // namespace detail

Schedule LinearOptions::schedule(const SchedulePlan& plan) const {
  return detail::warmed_up(plan, [=](std::int64_t step) {
    return std::max(0.0, detail::share(plan.total_steps - step, plan.total_steps - plan.warmup_steps));
  });
}

Schedule CosineOptions::schedule(const SchedulePlan& plan) const {
  detail::check_schedule(*this, plan);
  return detail::warmed_up(plan, [=, *this](std::int64_t step) {
    return detail::cosine(num_cycles, detail::progress(plan, step));
  });
}

Schedule CosineWithRestartsOptions::schedule(const SchedulePlan& plan) const {
  detail::check_schedule(*this, plan);
  return detail::warmed_up(plan, [=, *this](std::int64_t step) {
    const auto done = static_cast<double>(step - plan.warmup_steps),
               all = static_cast<double>(std::max<std::int64_t>(1, plan.total_steps - plan.warmup_steps));
    if (done >= all) return 0.0;
    const double cycle = detail::share_rounded_down(num_cycles, done, all);
    return detail::cosine(0.5, std::max(0.0, num_cycles * done / all - cycle));
  });
}

Schedule PolynomialOptions::schedule(const SchedulePlan& plan) const {
  detail::check_schedule(*this, plan);
  if (!(lr_end < plan.learning_rate))
    throw ArgumentError(fmt::format("{}: lr_end is {}: must be below the learning rate, {}", plan.where,
                                    lr_end, plan.learning_rate));
  return detail::warmed_up(plan, [=, *this](std::int64_t step) {
    if (step > plan.total_steps) return lr_end / plan.learning_rate;
    const double left = 1 - detail::progress(plan, step);
    return ((plan.learning_rate - lr_end) * std::pow(left, power) + lr_end) / plan.learning_rate;
  });
}

Schedule ConstantOptions::schedule(const SchedulePlan&) const {
  return [](std::int64_t) { return 1.0; };
}

Schedule ConstantWithWarmupOptions::schedule(const SchedulePlan& plan) const {
  return detail::warmed_up(plan, [](std::int64_t) { return 1.0; });
}

Schedule InverseSqrtOptions::schedule(const SchedulePlan& plan) const {
  detail::check_schedule(*this, plan);
  const auto warmup = static_cast<double>(plan.warmup_steps);
  const double scale = timescale.value_or(warmup > 0 ? warmup : 10'000);
  return detail::warmed_up(plan, [=](std::int64_t step) {
    return 1 / std::sqrt((static_cast<double>(step) + scale - warmup) / scale);
  });
}

Schedule CosineWithMinLrOptions::schedule(const SchedulePlan& plan) const {
  detail::check_schedule(*this, plan);
  const double least = detail::least_rate(*this, plan);
  return detail::warmed_up(plan, [=, *this](std::int64_t step) {
    return detail::cosine(num_cycles, detail::progress(plan, step)) * (1 - least) + least;
  });
}

Schedule CosineWarmupWithMinLrOptions::schedule(const SchedulePlan& plan) const {
  detail::check_schedule(*this, plan);
  const double least = detail::least_rate(*this, plan);
  return [=, *this](std::int64_t step) {
    const auto warmup = plan.warmup_steps;
    if (step < warmup && warmup_lr_rate)
      return *warmup_lr_rate + (1 - *warmup_lr_rate) * detail::share(step, warmup - 1);
    if (step < warmup) return detail::share(step + 1, warmup);
    return detail::cosine(num_cycles, detail::progress(plan, step + 1)) * (1 - least) + least;
  };
}

Schedule WarmupStableDecayOptions::schedule(const SchedulePlan& plan) const {
  detail::check_schedule(*this, plan);
  if (!num_decay_steps) throw ArgumentError(plan.where + ": num_decay_steps must be given");
  const std::int64_t warmup = plan.warmup_steps, decay = *num_decay_steps;
  const std::int64_t peak_end = warmup + num_stable_steps.value_or(plan.total_steps - warmup - decay);
  return [=, *this](std::int64_t step) {
    const auto scaled = [&](double x) { return std::max(0.0, x * (1 - min_lr_ratio) + min_lr_ratio); };
    if (step < warmup) return scaled(detail::rise(warmup_type, detail::share(step, warmup)));
    if (step < peak_end) return 1.0;
    if (step >= peak_end + decay) return min_lr_ratio;
    return scaled(detail::fall(decay_type, num_cycles, detail::share(step - peak_end, decay)));
  };
}

}  // namespace etude::inline v0
