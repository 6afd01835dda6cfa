#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "etude/error.hpp"
#include "etude/optim/metric_schedules.hpp"
#include "etude/reflect/enum.hpp"

/// Reads the state of a scheduler and believes nothing of it unseen.
namespace etude::detail {

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

}  // namespace etude::detail
