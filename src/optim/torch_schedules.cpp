#include "etude/optim/torch_schedules.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <string_view>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/optim/schedule_options.hpp"

namespace etude::inline v0 {
namespace detail {

namespace {

double ratio(std::int64_t part, std::int64_t whole) {
  return static_cast<double>(part) / static_cast<double>(whole);
}

/// Goes from `start` to `end` along half a cosine wave as `progress` goes from 0 to 1.
double annealed(double start, double end, double progress) {
  return end + (start - end) * (1 + std::cos(std::numbers::pi * progress)) / 2;
}

/// The height above the bottom of the cycles, as a fraction of the first cycle's height.
double cycle_height(const CyclicLROptions& options, std::int64_t step) {
  const auto up = static_cast<double>(options.step_size_up), now = static_cast<double>(step);
  const auto down = static_cast<double>(options.step_size_down.value_or(options.step_size_up));
  const double at = std::fmod(now, up + down);
  const double height = at <= up ? at / up : (up + down - at) / down;
  switch (options.mode) {
    case CyclicMode::triangular2:
      return height * std::exp2(-std::floor(now / (up + down)));
    case CyclicMode::exp_range:
      return height * std::pow(options.gamma, now);
    case CyclicMode::triangular:
      break;
  }
  return height;
}

/// Goes from `start` to `peak` and then to `end`, which it reaches in the last of `total` steps. The phases
/// may begin and end between steps, as in torch.
double one_cycle(const OneCycleLROptions& options, std::int64_t total, std::int64_t step, double start,
                 double peak, double end) {
  const auto steps = static_cast<double>(total), last = steps - 1;
  const auto now = std::min(static_cast<double>(step), last);
  const double top = options.pct_start * steps - 1;
  const double bottom = options.three_phase ? 2 * options.pct_start * steps - 2 : top;
  const auto between = [&](double from, double to, double progress) {
    return options.anneal_strategy == "cos" ? annealed(from, to, progress) : from + (to - from) * progress;
  };
  if (now <= top) return between(start, peak, top > 0 ? now / top : 0);
  if (now <= bottom) return between(peak, start, (now - top) / (bottom - top));
  return between(options.three_phase ? start : peak, end, (now - bottom) / (last - bottom));
}

std::vector<SchedulePart> read_parts(const std::vector<nlohmann::json>& schedulers, std::string_view where) {
  std::vector<SchedulePart> parts;
  for (const auto& each : schedulers) parts.push_back(read_part(each, parts.size(), where));
  return parts;
}

bool sets_momentum(const GroupSchedule& schedule) { return static_cast<bool>(schedule.momentum); }

/// Schedules that run one after another, each from its entry in `starts` on.
struct Sequence {
  std::vector<GroupSchedule> schedules;
  std::vector<std::int64_t> starts;

  std::size_t index_at(std::int64_t step) const {
    return static_cast<std::size_t>(std::ranges::upper_bound(starts, step) - starts.begin()) - 1;
  }

  double lr(std::int64_t step, double initial_lr) const {
    const auto i = index_at(step);
    return schedules[i].lr(step - starts[i], initial_lr);
  }

  double momentum(std::int64_t step) const {
    const auto now = index_at(step);
    if (schedules[now].momentum) return schedules[now].momentum(step - starts[now]);
    for (auto i = now; i-- > 0;)
      if (schedules[i].momentum && starts[i + 1] > starts[i])
        return schedules[i].momentum(starts[i + 1] - 1 - starts[i]);
    return std::ranges::find_if(schedules, sets_momentum)->momentum(0);
  }
};

}  // namespace

}  // namespace detail

Schedule StepLROptions::schedule(const SchedulePlan& plan) const {
  detail::check_schedule(*this, plan);
  return [*this](std::int64_t step) { return std::pow(gamma, static_cast<double>(step / step_size)); };
}

Schedule MultiStepLROptions::schedule(const SchedulePlan& plan) const {
  detail::check_schedule(*this, plan);
  auto sorted = milestones;
  std::ranges::sort(sorted);
  if (sorted.front() < 0)
    throw ArgumentError(fmt::format("{}: milestones has {}: must be at least 0", plan.where, sorted.front()));
  return [sorted, gamma = gamma](std::int64_t step) {
    return std::pow(gamma, static_cast<double>(std::ranges::upper_bound(sorted, step) - sorted.begin()));
  };
}

Schedule ConstantLROptions::schedule(const SchedulePlan& plan) const {
  detail::check_schedule(*this, plan);
  return [*this](std::int64_t step) { return step < total_iters ? factor : 1; };
}

Schedule LinearLROptions::schedule(const SchedulePlan& plan) const {
  detail::check_schedule(*this, plan);
  return [*this](std::int64_t step) {
    const double progress = detail::ratio(std::min(step, total_iters), total_iters);
    return start_factor + (end_factor - start_factor) * progress;
  };
}

Schedule ExponentialLROptions::schedule(const SchedulePlan& plan) const {
  detail::check_schedule(*this, plan);
  return [*this](std::int64_t step) { return std::pow(gamma, static_cast<double>(step)); };
}

Schedule PolynomialLROptions::schedule(const SchedulePlan& plan) const {
  detail::check_schedule(*this, plan);
  return [*this](std::int64_t step) {
    return std::pow(detail::ratio(total_iters - std::min(step, total_iters), total_iters), power);
  };
}

GroupSchedule CosineAnnealingLROptions::schedule(const SchedulePlan& plan) const {
  detail::check_schedule(*this, plan);
  return {[*this](std::int64_t step, double initial_lr) {
            return detail::annealed(initial_lr, eta_min, std::fmod(detail::ratio(step, T_max), 2));
          },
          nullptr};
}

GroupSchedule CosineAnnealingWarmRestartsOptions::schedule(const SchedulePlan& plan) const {
  detail::check_schedule(*this, plan);
  return {[*this](std::int64_t step, double initial_lr) {
            // In doubles, since the lengths may exceed 64 bits.
            auto length = static_cast<double>(T_0);
            auto since = static_cast<double>(T_mult == 1 ? step % T_0 : step);
            for (; since >= length; length *= static_cast<double>(T_mult)) since -= length;
            return detail::annealed(initial_lr, eta_min, since / length);
          },
          nullptr};
}

GroupSchedule CyclicLROptions::schedule(const SchedulePlan& plan) const {
  detail::check_schedule(*this, plan);
  if (!base_lr) throw ArgumentError(plan.where + ": base_lr must be given");
  GroupSchedule result(
      [*this](std::int64_t step, double initial_lr) {
        const double height = max_lr.value_or(initial_lr) - *base_lr;
        return *base_lr + height * detail::cycle_height(*this, step);
      },
      nullptr);
  if (cycle_momentum)
    result.momentum = [*this](std::int64_t step) {
      return max_momentum - (max_momentum - base_momentum) * detail::cycle_height(*this, step);
    };
  return result;
}

GroupSchedule OneCycleLROptions::schedule(const SchedulePlan& plan) const {
  detail::check_schedule(*this, plan);
  const auto total = total_steps.value_or(std::max<std::int64_t>(1, plan.total_steps));
  GroupSchedule result(
      [*this, total](std::int64_t step, double initial_lr) {
        const double peak = max_lr.value_or(initial_lr), start = peak / div_factor;
        return detail::one_cycle(*this, total, step, start, peak, start / final_div_factor);
      },
      nullptr);
  if (cycle_momentum)
    result.momentum = [*this, total](std::int64_t step) {
      return detail::one_cycle(*this, total, step, max_momentum, base_momentum, max_momentum);
    };
  return result;
}

bool OneCycleLROptions::needs_total_steps() const { return !total_steps; }

GroupSchedule SequentialLROptions::schedule(const SchedulePlan& plan) const {
  detail::check_schedule(*this, plan);
  if (milestones.size() + 1 != schedulers.size())
    throw ArgumentError(
        fmt::format("{}: the number of milestones is {}: must be {}, one fewer than schedulers", plan.where,
                    milestones.size(), schedulers.size() - 1));
  detail::Sequence sequence{.schedules = {}, .starts = {0}};
  for (const auto milestone : milestones) {
    if (milestone < sequence.starts.back())
      throw ArgumentError(fmt::format("{}: milestones has {}: must be at least 0 and in rising order",
                                      plan.where, milestone));
    sequence.starts.push_back(milestone);
  }
  for (const auto& part : detail::read_parts(schedulers, plan.where)) {
    const auto i = sequence.schedules.size();
    const auto end = i < milestones.size() ? milestones[i] : plan.total_steps;
    const auto length = std::max<std::int64_t>(0, end - sequence.starts[i]);
    sequence.schedules.push_back(part.schedule(plan, length));
  }
  const bool has_momentum = std::ranges::any_of(sequence.schedules, detail::sets_momentum);
  GroupSchedule result(
      [sequence](std::int64_t step, double initial_lr) { return sequence.lr(step, initial_lr); }, nullptr);
  if (has_momentum) result.momentum = [sequence](std::int64_t step) { return sequence.momentum(step); };
  return result;
}

bool SequentialLROptions::needs_total_steps() const {
  // All parts but the last one end at milestones.
  const auto parts = detail::read_parts(schedulers, "lr_scheduler_kwargs of sequential_lr");
  return !parts.empty() && parts.back().needs_total_steps();
}

GroupSchedule ChainedSchedulerOptions::schedule(const SchedulePlan& plan) const {
  detail::check_schedule(*this, plan);
  std::vector<GroupSchedule> parts;
  for (const auto& part : detail::read_parts(schedulers, plan.where))
    parts.push_back(part.schedule(plan, plan.total_steps));
  const auto last = std::find_if(parts.rbegin(), parts.rend(), detail::sets_momentum);
  auto momentum = last == parts.rend() ? nullptr : last->momentum;
  return {[parts](std::int64_t step, double lr) {
            for (const auto& part : parts) lr = part.lr(step, lr);
            return lr;
          },
          momentum};
}

bool ChainedSchedulerOptions::needs_total_steps() const {
  const auto parts = detail::read_parts(schedulers, "lr_scheduler_kwargs of chained_scheduler");
  return std::ranges::any_of(parts, &detail::SchedulePart::needs_total_steps);
}

}  // namespace etude::inline v0
