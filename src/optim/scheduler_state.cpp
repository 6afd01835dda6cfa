#include "etude/optim/scheduler_state.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "etude/base/error.hpp"

namespace etude::inline v0::detail {

const std::vector<double>& numbers_in(const SchedulerState& state, const std::string& name,
                                      std::size_t count) {
  const auto found = state.find(name);
  if (found == state.end() || found->second.size() != count) {
    throw CheckpointError(fmt::format("the scheduler state must have {} number{} '{}', but has {}", count,
                                      count == 1 ? "" : "s", name,
                                      found == state.end() ? 0 : found->second.size()));
  }
  return found->second;
}

bool is_learning_rate(double rate) { return rate >= 0 && !std::isinf(rate); }

const std::vector<double>& rates_in(const SchedulerState& state, const std::string& name, std::size_t count) {
  const std::vector<double>& rates = numbers_in(state, name, count);
  for (double rate : rates) {
    if (!is_learning_rate(rate)) {
      throw CheckpointError(
          fmt::format("the scheduler state '{}' is {}: must be at least 0 and finite", name, rate));
    }
  }
  return rates;
}

void load_number(const SchedulerState& state, const std::string& name, double& target) {
  target = numbers_in(state, name, 1).front();
  if (std::isnan(target))
    throw CheckpointError(fmt::format("the scheduler state '{}' is NaN: must be a number", name));
}

void load_number(const SchedulerState& state, const std::string& name, std::int64_t& target) {
  const double value = numbers_in(state, name, 1).front();
  if (!(value >= 0 && value < 9007199254740992.0 && value == std::floor(value))) {
    throw CheckpointError(fmt::format(
        "the scheduler state '{}' is {}: must be a whole number, at least 0 and below 2^53", name, value));
  }
  target = static_cast<std::int64_t>(value);
}

void check_names(const SchedulerState& state, const SchedulerState& known) {
  for (const auto& entry : state) {
    if (known.contains(entry.first)) continue;
    throw CheckpointError(fmt::format(
        "the scheduler state has an unknown '{}'; was it saved by another scheduler?", entry.first));
  }
}

}  // namespace etude::inline v0::detail
