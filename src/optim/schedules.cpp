#include "etude/optim/schedules.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <numbers>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "etude/base/counting.hpp"
#include "etude/base/error.hpp"
#include "etude/optim/schedule_options.hpp"
#include "etude/reflect/check_fields.hpp"
#include "etude/reflect/enum.hpp"

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

/// A linear warmup, then `after`.
template <typename After>
Schedule warmed_up(std::int64_t warmup, After after) {
  return [=](std::int64_t step) { return step < warmup ? share(step, warmup) : after(step); };
}

double least_rate(const std::optional<double>& min_lr, const std::optional<double>& min_lr_rate, double lr) {
  if (min_lr.has_value() == min_lr_rate.has_value()) {
    throw ArgumentError("lr_scheduler_kwargs: exactly one of min_lr and min_lr_rate must be given");
  }
  return min_lr ? *min_lr / lr : *min_lr_rate;
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

Schedule linear_schedule(std::int64_t warmup, std::int64_t total) {
  return detail::warmed_up(
      warmup, [=](std::int64_t step) { return std::max(0.0, detail::share(total - step, total - warmup)); });
}

Schedule cosine_schedule(std::int64_t warmup, std::int64_t total, const CosineOptions& options) {
  return detail::warmed_up(warmup, [=](std::int64_t step) {
    return detail::cosine(options.num_cycles, detail::share(step - warmup, total - warmup));
  });
}

Schedule cosine_with_restarts_schedule(std::int64_t warmup, std::int64_t total,
                                       const CosineWithRestartsOptions& options) {
  return detail::warmed_up(warmup, [=](std::int64_t step) {
    const auto done = static_cast<double>(step - warmup),
               all = static_cast<double>(std::max<std::int64_t>(1, total - warmup));
    if (done >= all) return 0.0;
    const double cycle = detail::share_rounded_down(options.num_cycles, done, all);
    return detail::cosine(0.5, std::max(0.0, options.num_cycles * done / all - cycle));
  });
}

Schedule polynomial_schedule(std::int64_t warmup, std::int64_t total, double lr,
                             const PolynomialOptions& options) {
  if (!(options.lr_end < lr)) {
    throw ArgumentError(fmt::format("lr_scheduler_kwargs: lr_end is {}: must be below the learning rate, {}",
                                    options.lr_end, lr));
  }
  return detail::warmed_up(warmup, [=](std::int64_t step) {
    if (step > total) return options.lr_end / lr;
    const double left = 1 - detail::share(step - warmup, total - warmup);
    return ((lr - options.lr_end) * std::pow(left, options.power) + options.lr_end) / lr;
  });
}

Schedule constant_schedule() {
  return [](std::int64_t) { return 1.0; };
}

Schedule constant_with_warmup_schedule(std::int64_t warmup) {
  return detail::warmed_up(warmup, [](std::int64_t) { return 1.0; });
}

Schedule inverse_sqrt_schedule(std::int64_t warmup, const InverseSqrtOptions& options) {
  const auto w = static_cast<double>(warmup);
  const double timescale = options.timescale.value_or(warmup > 0 ? w : 10'000);
  return detail::warmed_up(warmup, [=](std::int64_t step) {
    return 1 / std::sqrt((static_cast<double>(step) + timescale - w) / timescale);
  });
}

Schedule cosine_with_min_lr_schedule(std::int64_t warmup, std::int64_t total, double lr,
                                     const CosineWithMinLrOptions& options) {
  const double least = detail::least_rate(options.min_lr, options.min_lr_rate, lr);
  return detail::warmed_up(warmup, [=](std::int64_t step) {
    return detail::cosine(options.num_cycles, detail::share(step - warmup, total - warmup)) * (1 - least) +
           least;
  });
}

Schedule cosine_warmup_with_min_lr_schedule(std::int64_t warmup, std::int64_t total, double lr,
                                            const CosineWarmupWithMinLrOptions& options) {
  const double least = detail::least_rate(options.min_lr, options.min_lr_rate, lr);
  return [=](std::int64_t step) {
    if (step < warmup && options.warmup_lr_rate) {
      return *options.warmup_lr_rate + (1 - *options.warmup_lr_rate) * detail::share(step, warmup - 1);
    }
    if (step < warmup) return detail::share(step + 1, warmup);
    return detail::cosine(options.num_cycles, detail::share(step - warmup + 1, total - warmup)) *
               (1 - least) +
           least;
  };
}

Schedule warmup_stable_decay_schedule(std::int64_t warmup, std::int64_t total,
                                      const WarmupStableDecayOptions& options) {
  if (!options.num_decay_steps) throw ArgumentError("lr_scheduler_kwargs: num_decay_steps must be given");
  detail::check_fields(options, "lr_scheduler_kwargs: ");
  const std::int64_t decay = *options.num_decay_steps;
  const std::int64_t peak_end = warmup + options.num_stable_steps.value_or(total - warmup - decay);
  return [=](std::int64_t step) {
    const auto scaled = [&](double x) {
      return std::max(0.0, x * (1 - options.min_lr_ratio) + options.min_lr_ratio);
    };
    if (step < warmup) {
      return scaled(detail::rise(options.warmup_type, detail::share(step, warmup)));
    }
    if (step < peak_end) return 1.0;
    if (step >= peak_end + decay) return options.min_lr_ratio;
    return scaled(
        detail::fall(options.decay_type, options.num_cycles, detail::share(step - peak_end, decay)));
  };
}

Schedule make_schedule(SchedulerType type, std::int64_t warmup, std::int64_t total, double lr,
                       const nlohmann::json& kwargs) {
  using enum SchedulerType;
  switch (type) {
    case linear:
      detail::no_schedule_options(type, kwargs);
      return linear_schedule(warmup, total);
    case constant:
      detail::no_schedule_options(type, kwargs);
      return constant_schedule();
    case constant_with_warmup:
      detail::no_schedule_options(type, kwargs);
      return constant_with_warmup_schedule(warmup);
    case cosine:
      return cosine_schedule(warmup, total, detail::schedule_options<CosineOptions>(type, kwargs));
    case cosine_with_restarts:
      return cosine_with_restarts_schedule(warmup, total,
                                           detail::schedule_options<CosineWithRestartsOptions>(type, kwargs));
    case polynomial:
      return polynomial_schedule(warmup, total, lr,
                                 detail::schedule_options<PolynomialOptions>(type, kwargs));
    case inverse_sqrt:
      return inverse_sqrt_schedule(warmup, detail::schedule_options<InverseSqrtOptions>(type, kwargs));
    case cosine_with_min_lr:
      return cosine_with_min_lr_schedule(warmup, total, lr,
                                         detail::schedule_options<CosineWithMinLrOptions>(type, kwargs));
    case cosine_warmup_with_min_lr:
      return cosine_warmup_with_min_lr_schedule(
          warmup, total, lr, detail::schedule_options<CosineWarmupWithMinLrOptions>(type, kwargs));
    case warmup_stable_decay:
      return warmup_stable_decay_schedule(warmup, total,
                                          detail::schedule_options<WarmupStableDecayOptions>(type, kwargs));
    case reduce_lr_on_plateau:
    case greedy:
      break;
  }
  throw ArgumentError(fmt::format("{} follows a metric and isn't a function of the step", type));
}

}  // namespace etude::inline v0
