#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "etude/optim/schedule.hpp"
#include "etude/reflect/struct.hpp"
#include "etude/training_arguments.hpp"

/// The schedules of Hugging Face's Trainer, with its option names and defaults. Each rises linearly from zero
/// during the warmup steps, unless its comment says otherwise. `schedule` throws ArgumentError for invalid
/// options.
namespace etude::inline v0 {

/// Falls linearly to zero at the end of the training. `get_linear_schedule_with_warmup` in transformers.
struct LinearOptions {
  Schedule schedule(const SchedulePlan& plan) const;
};

/// Falls along a cosine to zero at the end of the training. `get_cosine_schedule_with_warmup` in
/// transformers.
struct CosineOptions {
  ETUDE_STRUCT(CosineOptions, (double, num_cycles, "number of cosine cycles" | finite(), 0.5));
  Schedule schedule(const SchedulePlan& plan) const;
};

/// Falls along a cosine to zero several times, and begins each cycle at the peak.
/// `get_cosine_with_hard_restarts_schedule_with_warmup` in transformers.
struct CosineWithRestartsOptions {
  ETUDE_STRUCT(CosineWithRestartsOptions,
               (double, num_cycles, "number of cosine decays, each from the peak to zero" | finite(), 1.0));
  Schedule schedule(const SchedulePlan& plan) const;
};

/// Falls to `lr_end` like a power of the remaining steps. `lr_end` applies to the first group; others end at
/// the same fraction of their initial rates. `get_polynomial_decay_schedule_with_warmup` in transformers.
struct PolynomialOptions {
  ETUDE_STRUCT(PolynomialOptions,
               (double, lr_end, "learning rate at the end; must be below the initial one" | at_least(0),
                1e-7),
               (double, power, "exponent of the fraction of remaining steps" | at_least(0), 1.0));
  Schedule schedule(const SchedulePlan& plan) const;
};

/// Keeps the initial learning rate, without warmup. `get_constant_schedule` in transformers.
struct ConstantOptions {
  Schedule schedule(const SchedulePlan& plan) const;
};

/// Keeps the initial learning rate after the warmup. `get_constant_schedule_with_warmup` in transformers.
struct ConstantWithWarmupOptions {
  Schedule schedule(const SchedulePlan& plan) const;
};

/// Falls like the inverse square root of the step. `get_inverse_sqrt_schedule` in transformers.
struct InverseSqrtOptions {
  ETUDE_STRUCT(InverseSqrtOptions,
               (std::optional<double>, timescale,
                "steps after the warmup until the rate has fallen by a factor of sqrt(2); unset means the "
                "warmup steps, or 10000 without warmup" |
                    above(0)));
  Schedule schedule(const SchedulePlan& plan) const;
};

/// Falls along a cosine to a minimum. Exactly one of `min_lr`, for the first group, and `min_lr_rate` must be
/// set. `get_cosine_with_min_lr_schedule_with_warmup` in transformers.
struct CosineWithMinLrOptions {
  ETUDE_STRUCT(CosineWithMinLrOptions, (double, num_cycles, "number of cosine cycles" | finite(), 0.5),
               (std::optional<double>, min_lr, "learning rate at the end" | at_least(0)),
               (std::optional<double>, min_lr_rate,
                "the same as a fraction of the initial one" | at_least(0)));
  Schedule schedule(const SchedulePlan& plan) const;
};

/// Falls along a cosine to a minimum, which the last step reaches; the warmup doesn't begin at zero. Exactly
/// one of `min_lr`, for the first group, and `min_lr_rate` must be set.
/// `get_cosine_with_min_lr_schedule_with_warmup_lr_rate` in transformers.
struct CosineWarmupWithMinLrOptions {
  ETUDE_STRUCT(CosineWarmupWithMinLrOptions, (double, num_cycles, "number of cosine cycles" | finite(), 0.5),
               (std::optional<double>, min_lr, "learning rate at the end" | at_least(0)),
               (std::optional<double>, min_lr_rate,
                "the same as a fraction of the initial one" | at_least(0)),
               (std::optional<double>, warmup_lr_rate,
                "fraction of the learning rate at the start of warmup" | at_least(0)));
  Schedule schedule(const SchedulePlan& plan) const;
};

/// Keeps the peak after the warmup, and decays in the last steps. `get_wsd_schedule` in transformers.
struct WarmupStableDecayOptions {
  static constexpr std::string_view curves[] = {"linear", "cosine", "1-sqrt"};
  ETUDE_STRUCT(WarmupStableDecayOptions,
               (std::optional<std::int64_t>, num_decay_steps, "decay steps; required" | between(0, 1e12)),
               (std::optional<std::int64_t>, num_stable_steps,
                "steps at the peak; unset means all remaining steps" | between(0, 1e12)),
               (std::string, warmup_type, "shape of the warmup: linear, cosine or 1-sqrt" | any_of(curves),
                "linear"),
               (std::string, decay_type, "shape of the decay: linear, cosine or 1-sqrt" | any_of(curves),
                "cosine"),
               (double, min_lr_ratio,
                "learning rate at both ends, as a fraction of the initial one" | at_least(0), 0.0),
               (double, num_cycles, "number of cosine cycles of the decay" | finite(), 0.5));
  Schedule schedule(const SchedulePlan& plan) const;
};

/// The schedule of this type. `kwargs` are its options, null or a JSON object. If the type has no warmup of
/// its own, a linear one precedes it. Throws ArgumentError for unknown or invalid options, and for types that
/// follow a metric.
GroupSchedule make_schedule(SchedulerType type, const SchedulePlan& plan,
                            const nlohmann::json& kwargs = nullptr);

/// True if the schedule depends on the number of update steps of the training. Throws ArgumentError for
/// invalid parts of a schedule.
bool needs_total_steps(SchedulerType type, const nlohmann::json& kwargs);

}  // namespace etude::inline v0
