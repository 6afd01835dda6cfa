#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "etude/optim/schedule.hpp"
#include "etude/reflect/struct.hpp"
#include "etude/training_arguments.hpp"

namespace etude::inline v0 {

/// The options of the schedules, with Hugging Face's names and defaults.
struct CosineOptions {
  ETUDE_STRUCT(CosineOptions, (double, num_cycles, "number of cosine cycles", 0.5));
};
struct CosineWithRestartsOptions {
  ETUDE_STRUCT(CosineWithRestartsOptions,
               (double, num_cycles, "number of cosine decays, each from the peak to zero", 1.0));
};
struct PolynomialOptions {
  ETUDE_STRUCT(PolynomialOptions, (double, lr_end, "learning rate at the end", 1e-7),
               (double, power, "exponent of the fraction of remaining steps", 1.0));
};
struct InverseSqrtOptions {
  ETUDE_STRUCT(InverseSqrtOptions,
               (std::optional<double>, timescale, "unset means the warmup steps, or 10000 without warmup"));
};
struct CosineWithMinLrOptions {
  ETUDE_STRUCT(CosineWithMinLrOptions, (double, num_cycles, "number of cosine cycles", 0.5),
               (std::optional<double>, min_lr, "learning rate at the end"),
               (std::optional<double>, min_lr_rate, "the same as a fraction of the initial one"));
};
struct CosineWarmupWithMinLrOptions {
  ETUDE_STRUCT(CosineWarmupWithMinLrOptions, (double, num_cycles, "number of cosine cycles", 0.5),
               (std::optional<double>, min_lr, "learning rate at the end"),
               (std::optional<double>, min_lr_rate, "the same as a fraction of the initial one"),
               (std::optional<double>, warmup_lr_rate,
                "fraction of the learning rate at the start of warmup"));
};
struct WarmupStableDecayOptions {
  static constexpr std::string_view curves[] = {"linear", "cosine", "1-sqrt"};
  ETUDE_STRUCT(WarmupStableDecayOptions,
               (std::optional<std::int64_t>, num_decay_steps, "decay steps; required"),
               (std::optional<std::int64_t>, num_stable_steps,
                "steps at the peak; unset means all remaining steps"),
               (std::string, warmup_type, "shape of the warmup" | any_of(curves), "linear"),
               (std::string, decay_type, "shape of the decay" | any_of(curves), "cosine"),
               (double, min_lr_ratio, "fraction of the learning rate at both ends", 0.0),
               (double, num_cycles, "number of cosine cycles", 0.5));
};

Schedule linear_schedule(std::int64_t warmup, std::int64_t total);

Schedule cosine_schedule(std::int64_t warmup, std::int64_t total, const CosineOptions& options = {});

Schedule cosine_with_restarts_schedule(std::int64_t warmup, std::int64_t total,
                                       const CosineWithRestartsOptions& options = {});

/// Throws ArgumentError unless lr_end is less than `lr`, the initial learning rate.
Schedule polynomial_schedule(std::int64_t warmup, std::int64_t total, double lr,
                             const PolynomialOptions& options = {});

Schedule constant_schedule();

Schedule constant_with_warmup_schedule(std::int64_t warmup);

Schedule inverse_sqrt_schedule(std::int64_t warmup, const InverseSqrtOptions& options = {});

/// Throws ArgumentError unless exactly one of min_lr and min_lr_rate is set; `lr` is the initial learning
/// rate.
Schedule cosine_with_min_lr_schedule(std::int64_t warmup, std::int64_t total, double lr,
                                     const CosineWithMinLrOptions& options);

/// Like the above, but the first step's rate isn't zero, and the last step reaches the minimum.
Schedule cosine_warmup_with_min_lr_schedule(std::int64_t warmup, std::int64_t total, double lr,
                                            const CosineWarmupWithMinLrOptions& options);

/// Throws ArgumentError if num_decay_steps is missing or a type is unknown.
Schedule warmup_stable_decay_schedule(std::int64_t warmup, std::int64_t total,
                                      const WarmupStableDecayOptions& options);

/// The schedule of this type. `warmup` and `total` are in update steps; `lr` is the initial learning rate.
/// Throws ArgumentError for unknown or invalid options, and for the two types that follow a metric.
Schedule make_schedule(SchedulerType type, std::int64_t warmup, std::int64_t total, double lr,
                       const nlohmann::json& kwargs = nullptr);

}  // namespace etude::inline v0
