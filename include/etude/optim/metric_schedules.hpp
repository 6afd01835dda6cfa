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

inline void load_number(const SchedulerState& state, const std::string& name, double& target) {
  target = numbers_in(state, name, 1).front();
}

inline void load_number(const SchedulerState& state, const std::string& name, std::int64_t& target) {
  const double value = numbers_in(state, name, 1).front();
  if (!(value >= 0 && value < 9e15 && value == std::floor(value))) {
    throw CheckpointError(fmt::format("the scheduler state '{}' is {}: must be a whole number", name, value));
  }
  target = static_cast<std::int64_t>(value);
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
    return {{"best", {best_}},
            {"num_bad_epochs", {static_cast<double>(bad_)}},
            {"cooldown_counter", {static_cast<double>(cooldown_)}}};
  }

  void load_state(const SchedulerState& state) {
    detail::load_number(state, "best", best_);
    detail::load_number(state, "num_bad_epochs", bad_);
    detail::load_number(state, "cooldown_counter", cooldown_);
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
    return {{"best", {best_}},
            {"num_good_epochs", {static_cast<double>(good_)}},
            {"num_bad_epochs", {static_cast<double>(bad_)}},
            {"cooldown_counter", {static_cast<double>(cooldown_)}},
            {"warmup_counter", {static_cast<double>(warmup_)}},
            {"reset_start", {static_cast<double>(reset_in_)}},
            {"window", {window_.begin(), window_.end()}}};
  }

  void load_state(const SchedulerState& state) {
    detail::load_number(state, "best", best_);
    detail::load_number(state, "num_good_epochs", good_);
    detail::load_number(state, "num_bad_epochs", bad_);
    detail::load_number(state, "cooldown_counter", cooldown_);
    detail::load_number(state, "warmup_counter", warmup_);
    detail::load_number(state, "reset_start", reset_in_);
    const auto window = state.find("window");
    window_.clear();
    if (window != state.end()) window_.assign(window->second.begin(), window->second.end());
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
