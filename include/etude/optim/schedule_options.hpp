#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

#include "etude/optim/read_options.hpp"
#include "etude/optim/schedule.hpp"
#include "etude/reflect/check_fields.hpp"
#include "etude/reflect/enum.hpp"
#include "etude/training_arguments.hpp"

/// Applies the options that users set for schedules.
namespace etude::inline v0::detail {

/// `options` with the changes that `kwargs` makes.
template <typename Options>
Options schedule_options(SchedulerType type, const nlohmann::json& kwargs, Options options = {}) {
  read_options(kwargs, options, fmt::format("lr_scheduler_kwargs of {}", type));
  return options;
}

/// Throws an ArgumentError that lists all options outside their allowed values.
template <typename Options>
void check_schedule(const Options& options, const SchedulePlan& plan) {
  check_fields(options, plan.where + ": ");
}

/// A schedule in the list `schedulers` of another one.
struct SchedulePart {
  SchedulerType type = {};
  double warmup_steps = 0;
  nlohmann::json options;
  std::string where;

  bool needs_total_steps() const;

  /// `steps` is the length of this part.
  GroupSchedule schedule(const SchedulePlan& plan, std::int64_t steps) const;
};

/// Reads `schedulers[index]`. Throws ArgumentError for a wrong type or warmup, with a message that begins
/// with `where`.
SchedulePart read_part(const nlohmann::json& value, std::size_t index, std::string_view where);

}  // namespace etude::inline v0::detail
