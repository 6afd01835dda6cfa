#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <vector>
#include "etude/error.hpp"
#include "etude/optim/options.hpp"
#include "etude/reflect/enum.hpp"
#include "etude/reflect/struct.hpp"

/// Learning rates that follow a metric. These classes know neither LibTorch nor an optimizer: they change a
/// list of learning rates, one for each parameter group.
namespace etude {

ETUDE_ENUM(MetricMode, min, max);
ETUDE_ENUM(ThresholdMode, rel, abs);

struct ReduceLROnPlateauOptions {
  ETUDE_STRUCT(ReduceLROnPlateauOptions,
               (MetricMode, mode, "whether less or more is better", MetricMode::min),
               (double, factor, "what the learning rate is multiplied with", 0.1),
               (std::int64_t, patience, "evaluations without improvement that are borne", 10),
               (double, threshold, "what counts as an improvement", 1e-4),
               (ThresholdMode, threshold_mode, "threshold relative to the best, or absolute",
                ThresholdMode::rel),
               (std::int64_t, cooldown, "evaluations to wait after a reduction", 0),
               (double, min_lr, "least learning rate", 0.0),
               (double, eps, "smaller changes of the learning rate are not made", 1e-8));
};

struct GreedyLROptions {
  ETUDE_STRUCT(GreedyLROptions, (MetricMode, mode, "whether less or more is better", MetricMode::min),
               (double, factor, "learning rates are multiplied with it, or divided by it", 0.95),
               (std::int64_t, patience, "evaluations in a row, good or bad, before a change", 10),
               (double, threshold, "what counts as an improvement", 1e-6),
               (ThresholdMode, threshold_mode, "threshold relative to the best, or absolute",
                ThresholdMode::abs),
               (std::int64_t, cooldown, "evaluations to wait after a reduction", 0),
               (std::int64_t, warmup, "evaluations to wait after an increase", 0),
               (double, min_lr, "least learning rate", 1e-3), (double, max_lr, "largest learning rate", 1.0),
               (double, eps, "smaller changes of the learning rate are not made", 1e-8),
               (bool, smooth, "look at the mean of the last metrics", false),
               (std::int64_t, window_size, "how many these are", 50),
               (std::int64_t, reset_start, "reductions at min_lr before everything starts anew", 500));
};

namespace detail {

inline double worst(MetricMode mode) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  return mode == MetricMode::min ? infinity : -infinity;
}

inline bool better(double metric, double best, MetricMode mode, double threshold,
                   ThresholdMode threshold_mode) {
  const double sign = mode == MetricMode::min ? -1 : 1;
  const double bar =
      threshold_mode == ThresholdMode::rel ? best * (1 + sign * threshold) : best + sign * threshold;
  return mode == MetricMode::min ? metric < bar : metric > bar;
}

inline void check_factor(double factor) {
  if (!(factor > 0 && factor < 1)) {
    throw ArgumentError(
        fmt::format("lr_scheduler_kwargs: factor is {}: must be above 0 and below 1", factor));
  }
}

}  // namespace detail

/// The state of a scheduler: lists of plain numbers by name.
using SchedulerState = std::map<std::string, std::vector<double>>;

namespace detail {

/// The number, or numbers, called `name`. Throws CheckpointError when they are missing or not `count`.
inline const std::vector<double>& numbers_in(const SchedulerState& state, const std::string& name,
                                             std::size_t count) {
  const auto found = state.find(name);
  if (found == state.end() || found->second.size() != count) {
    throw CheckpointError(fmt::format("the scheduler state must have {} number{} '{}', but has {}", count,
                                      count == 1 ? "" : "s", name,
                                      found == state.end() ? 0 : found->second.size()));
  }
  return found->second;
}

/// One learning rate for each group.
inline const std::vector<double>& rates_in(const SchedulerState& state, const std::string& name,
                                           std::size_t count) {
  const std::vector<double>& rates = numbers_in(state, name, count);
  for (double rate : rates) {
    if (!(rate >= 0) || std::isinf(rate)) {
      throw CheckpointError(
          fmt::format("the scheduler state '{}' is {}: must be at least 0 and finite", name, rate));
    }
  }
  return rates;
}

/// The best metric so far, which is infinite before the first.
inline void load_number(const SchedulerState& state, const std::string& name, double& target) {
  target = numbers_in(state, name, 1).front();
  if (std::isnan(target))
    throw CheckpointError(fmt::format("the scheduler state '{}' is NaN: must be a number", name));
}

inline void load_number(const SchedulerState& state, const std::string& name, std::int64_t& target) {
  const double value = numbers_in(state, name, 1).front();
  if (!(value >= 0 && value < 9007199254740992.0 && value == std::floor(value))) {
    throw CheckpointError(fmt::format(
        "the scheduler state '{}' is {}: must be a whole number, at least 0 and below 2^53", name, value));
  }
  target = static_cast<std::int64_t>(value);
}

/// Throws CheckpointError if `state` has what `known` hasn't, so that it must be another scheduler's.
inline void check_names(const SchedulerState& state, const SchedulerState& known) {
  for (const auto& entry : state) {
    if (known.contains(entry.first)) continue;
    throw CheckpointError(fmt::format(
        "the scheduler state has '{}', which this scheduler doesn't know; was it another's?", entry.first));
  }
}

/// What the best of one mode is means nothing in the other.
inline void check_mode(const SchedulerState& state, MetricMode mode) {
  const auto saved = numbers_in(state, "mode", 1).front();
  if (saved != static_cast<double>(mode)) {
    throw CheckpointError(fmt::format("the scheduler state 'mode' is {}: must be {} ({})", saved,
                                      static_cast<int>(mode), mode));
  }
}

}  // namespace detail

/// Reduces the learning rates when a metric has stopped improving, as PyTorch's class of that name.
class ReduceLROnPlateau {
 public:
  explicit ReduceLROnPlateau(const ReduceLROnPlateauOptions& options = {})
      : options_(options), best_(detail::worst(options.mode)) {
    detail::check_factor(options.factor);
  }

  void step(double metric, std::vector<double>& lrs) {
    if (detail::better(metric, best_, options_.mode, options_.threshold, options_.threshold_mode)) {
      best_ = metric;
      bad_ = 0;
    } else {
      ++bad_;
    }
    if (cooldown_ > 0) {
      --cooldown_;
      bad_ = 0;
    }
    if (bad_ <= options_.patience) return;
    for (double& lr : lrs) {
      const double reduced = std::max(lr * options_.factor, options_.min_lr);
      if (lr - reduced > options_.eps) lr = reduced;
    }
    cooldown_ = options_.cooldown;
    bad_ = 0;
  }

  SchedulerState state() const {
    return {{"mode", {static_cast<double>(options_.mode)}},
            {"best", {best_}},
            {"num_bad_epochs", {static_cast<double>(bad_)}},
            {"cooldown_counter", {static_cast<double>(cooldown_)}}};
  }

  /// Throws CheckpointError for a state of another kind or mode, or with impossible numbers; nothing is
  /// changed then.
  void load_state(const SchedulerState& state) {
    ReduceLROnPlateau loaded = *this;
    detail::check_names(state, this->state());
    detail::load_number(state, "best", loaded.best_);
    detail::load_number(state, "num_bad_epochs", loaded.bad_);
    detail::load_number(state, "cooldown_counter", loaded.cooldown_);
    detail::check_mode(state, options_.mode);
    *this = loaded;
  }

 private:
  ReduceLROnPlateauOptions options_;
  double best_;
  std::int64_t bad_ = 0;  // evaluations in a row that were no improvement
  std::int64_t cooldown_ = 0;
};

/// GreedyLR (arXiv 2512.14527) as Hugging Face has it: raises the learning rates while a metric improves,
/// lowers them while it doesn't, and starts anew after a while at the bottom.
class GreedyLR {
 public:
  explicit GreedyLR(const GreedyLROptions& options = {})
      : options_(options), best_(detail::worst(options.mode)), reset_in_(options.reset_start) {
    detail::check_factor(options.factor);
    if (options.window_size < 1) {
      throw ArgumentError(
          fmt::format("lr_scheduler_kwargs: window_size is {}: must be at least 1", options.window_size));
    }
  }

  /// `initial_lrs` is what starting anew goes back to.
  void step(double metric, std::vector<double>& lrs, const std::vector<double>& initial_lrs) {
    if (options_.smooth) metric = smoothed(metric);
    if (cooldown_ > 0 || warmup_ > 0) {
      --(cooldown_ > 0 ? cooldown_ : warmup_);
      good_ = bad_ = 0;
      return;
    }
    if (detail::better(metric, best_, options_.mode, options_.threshold, options_.threshold_mode)) {
      best_ = metric;
      ++good_;
      bad_ = 0;
    } else {
      ++bad_;
      good_ = 0;
    }
    if (good_ > options_.patience) {
      raise(lrs);
    } else if (bad_ > options_.patience) {
      lower(lrs, initial_lrs);
    }
  }

  SchedulerState state() const {
    return {{"mode", {static_cast<double>(options_.mode)}},
            {"best", {best_}},
            {"num_good_epochs", {static_cast<double>(good_)}},
            {"num_bad_epochs", {static_cast<double>(bad_)}},
            {"cooldown_counter", {static_cast<double>(cooldown_)}},
            {"warmup_counter", {static_cast<double>(warmup_)}},
            {"reset_start", {static_cast<double>(reset_in_)}},
            {"window", {window_.begin(), window_.end()}}};
  }

  /// As ReduceLROnPlateau's.
  void load_state(const SchedulerState& state) {
    GreedyLR loaded = *this;
    detail::check_names(state, this->state());
    detail::load_number(state, "best", loaded.best_);
    detail::load_number(state, "num_good_epochs", loaded.good_);
    detail::load_number(state, "num_bad_epochs", loaded.bad_);
    detail::load_number(state, "cooldown_counter", loaded.cooldown_);
    detail::load_number(state, "warmup_counter", loaded.warmup_);
    detail::load_number(state, "reset_start", loaded.reset_in_);
    loaded.window_.clear();
    if (const auto window = state.find("window"); window != state.end()) {
      if (window->second.size() > static_cast<std::size_t>(options_.window_size)) {
        throw CheckpointError(
            fmt::format("the scheduler state 'window' has {} numbers: must have at most window_size, {}",
                        window->second.size(), options_.window_size));
      }
      loaded.window_.assign(window->second.begin(), window->second.end());
    }
    detail::check_mode(state, options_.mode);
    *this = loaded;
  }

 private:
  double smoothed(double metric) {
    window_.push_back(metric);
    if (window_.size() > static_cast<std::size_t>(options_.window_size)) window_.pop_front();
    return std::accumulate(window_.begin(), window_.end(), 0.0) / static_cast<double>(window_.size());
  }

  void raise(std::vector<double>& lrs) {
    for (double& lr : lrs) {
      const double raised = std::min(lr / options_.factor, options_.max_lr);
      if (raised - lr > options_.eps) lr = raised;
    }
    reset_in_ = options_.reset_start;
    warmup_ = options_.warmup;
    good_ = 0;
  }

  void lower(std::vector<double>& lrs, const std::vector<double>& initial_lrs) {
    for (double& lr : lrs) {
      const double lowered = std::max(lr * options_.factor, options_.min_lr);
      if (lr - lowered > options_.eps) lr = lowered;
    }
    if (std::ranges::all_of(lrs, [&](double lr) { return lr <= options_.min_lr; }) && --reset_in_ <= 0) {
      lrs = initial_lrs;
      *this = GreedyLR(options_);
    }
    cooldown_ = options_.cooldown;
    bad_ = 0;
  }

  GreedyLROptions options_;
  double best_;
  std::int64_t good_ = 0;  // improvements in a row
  std::int64_t bad_ = 0;   // evaluations in a row that were none
  std::int64_t cooldown_ = 0;
  std::int64_t warmup_ = 0;
  std::int64_t reset_in_;
  std::deque<double> window_;
};

}  // namespace etude
