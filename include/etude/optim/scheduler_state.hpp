#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace etude::inline v0 {

/// The state of a scheduler: named lists of numbers.
using SchedulerState = std::map<std::string, std::vector<double>>;

namespace detail {

/// The number or numbers called `name`. Throws CheckpointError if they are missing or their number isn't
/// `count`.
const std::vector<double>& numbers_in(const SchedulerState& state, const std::string& name,
                                      std::size_t count);

/// True if this is a valid learning rate: at least 0 and finite.
bool is_learning_rate(double rate);

/// One learning rate per group.
const std::vector<double>& rates_in(const SchedulerState& state, const std::string& name, std::size_t count);

/// Reads a number, which may be infinite, as the best metric is before the first evaluation.
void load_number(const SchedulerState& state, const std::string& name, double& target);

void load_number(const SchedulerState& state, const std::string& name, std::int64_t& target);

/// Throws CheckpointError if `state` has entries that `known` lacks, and so is from another scheduler.
void check_names(const SchedulerState& state, const SchedulerState& known);

}  // namespace detail
}  // namespace etude::inline v0
