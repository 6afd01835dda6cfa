#include "etude/optim/metric_schedules.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/optim/scheduler_state.hpp"
#include "etude/reflect/check_fields.hpp"
#include "etude/reflect/enum.hpp"

namespace etude::inline v0 {

namespace detail {

namespace {

double worst(MetricMode mode) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  return mode == MetricMode::min ? infinity : -infinity;
}

bool better(double metric, double best, MetricMode mode, double threshold, ThresholdMode threshold_mode) {
  const double sign = mode == MetricMode::min ? -1 : 1;
  const double bar =
      threshold_mode == ThresholdMode::rel ? best * (1 + sign * threshold) : best + sign * threshold;
  return mode == MetricMode::min ? metric < bar : metric > bar;
}

/// Throws for a state saved in the other mode, whose best value means nothing in this one.
void check_mode(const SchedulerState& state, MetricMode mode) {
  const auto saved = numbers_in(state, "mode", 1).front();
  if (saved != static_cast<double>(mode)) {
    throw CheckpointError(fmt::format("the scheduler state 'mode' is {}: must be {} ({})", saved,
                                      static_cast<int>(mode), mode));
  }
}

}  // namespace

}  // namespace detail

ReduceLROnPlateau::ReduceLROnPlateau(const ReduceLROnPlateauOptions& options)
    : options_(options), best_(detail::worst(options.mode)) {
  detail::check_fields(options, "lr_scheduler_kwargs: ");
}

void ReduceLROnPlateau::step(double metric, std::vector<double>& lrs) {
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

SchedulerState ReduceLROnPlateau::state() const {
  return {{"mode", {static_cast<double>(options_.mode)}},
          {"best", {best_}},
          {"num_bad_epochs", {static_cast<double>(bad_)}},
          {"cooldown_counter", {static_cast<double>(cooldown_)}}};
}

void ReduceLROnPlateau::load_state(const SchedulerState& state) {
  ReduceLROnPlateau loaded = *this;
  detail::check_names(state, this->state());
  detail::load_number(state, "best", loaded.best_);
  detail::load_number(state, "num_bad_epochs", loaded.bad_);
  detail::load_number(state, "cooldown_counter", loaded.cooldown_);
  detail::check_mode(state, options_.mode);
  *this = loaded;
}

GreedyLR::GreedyLR(const GreedyLROptions& options)
    : options_(options), best_(detail::worst(options.mode)), reset_in_(options.reset_start) {
  detail::check_fields(options, "lr_scheduler_kwargs: ");
}

void GreedyLR::step(double metric, std::vector<double>& lrs, const std::vector<double>& initial_lrs) {
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

SchedulerState GreedyLR::state() const {
  return {{"mode", {static_cast<double>(options_.mode)}},
          {"best", {best_}},
          {"num_good_epochs", {static_cast<double>(good_)}},
          {"num_bad_epochs", {static_cast<double>(bad_)}},
          {"cooldown_counter", {static_cast<double>(cooldown_)}},
          {"warmup_counter", {static_cast<double>(warmup_)}},
          {"reset_start", {static_cast<double>(reset_in_)}},
          {"window", {window_.begin(), window_.end()}}};
}

void GreedyLR::load_state(const SchedulerState& state) {
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
  *this = std::move(loaded);
}

double GreedyLR::smoothed(double metric) {
  window_.push_back(metric);
  if (window_.size() > static_cast<std::size_t>(options_.window_size)) window_.pop_front();
  return std::accumulate(window_.begin(), window_.end(), 0.0) / static_cast<double>(window_.size());
}

void GreedyLR::raise(std::vector<double>& lrs) {
  for (double& lr : lrs) {
    const double raised = std::min(lr / options_.factor, options_.max_lr);
    if (raised - lr > options_.eps) lr = raised;
  }
  reset_in_ = options_.reset_start;
  warmup_ = options_.warmup;
  good_ = 0;
}

void GreedyLR::lower(std::vector<double>& lrs, const std::vector<double>& initial_lrs) {
  for (double& lr : lrs) {
    const double lowered = std::max(lr * options_.factor, options_.min_lr);
    if (lr - lowered > options_.eps) lr = lowered;
  }
  // After `reset_start` reductions at the minimum, start over.
  if (std::ranges::all_of(lrs, [&](double lr) { return lr <= options_.min_lr; }) && --reset_in_ <= 0) {
    lrs = initial_lrs;
    *this = GreedyLR(options_);
  }
  cooldown_ = options_.cooldown;
  bad_ = 0;
}

}  // namespace etude::inline v0
