#include "etude/optim/schedule_options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "etude/base/error.hpp"
#include "etude/optim/metric_schedules.hpp"
#include "etude/optim/schedules.hpp"
#include "etude/optim/torch_schedules.hpp"
#include "etude/reflect/check_fields.hpp"
#include "etude/reflect/enum.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {
namespace detail {

namespace {

/// Begins with a linear rise to the first learning rate of `schedule`.
GroupSchedule after_warmup(std::int64_t warmup, const GroupSchedule& schedule) {
  const auto begun = [warmup](std::int64_t step) { return std::max<std::int64_t>(0, step - warmup); };
  GroupSchedule result = schedule;
  result.lr = [=, lr = schedule.lr](std::int64_t step, double initial_lr) {
    const double share = step < warmup ? static_cast<double>(step) / static_cast<double>(warmup) : 1;
    return share * lr(begun(step), initial_lr);
  };
  if (schedule.momentum)
    result.momentum = [=, momentum = schedule.momentum](std::int64_t step) { return momentum(begun(step)); };
  return result;
}

template <typename Options>
Options options_in(const nlohmann::json& kwargs, std::string_view where) {
  Options options;
  if constexpr (ReflectedStruct<Options>)
    etude::read_options(kwargs, options, where);
  else if (!kwargs.empty())
    throw ArgumentError(
        fmt::format("{} is {}: must be empty, since there are no options", where, kwargs.dump()));
  return options;
}

/// Calls `use` with the options of this type, as `kwargs` sets them.
template <class Use>
auto with_options(SchedulerType type, const nlohmann::json& kwargs, std::string_view where, Use use) {
  switch (type) {
#define ETUDE_DETAIL_SCHEDULE(name, options, ...) \
  case SchedulerType::name:                       \
    return use(options_in<options>(kwargs, where));
    ETUDE_DETAIL_FOR_SCHEDULES(ETUDE_DETAIL_SCHEDULE)
#undef ETUDE_DETAIL_SCHEDULE
  }
  throw ArgumentError(fmt::format("lr_scheduler_type is {}: must be one of {}", static_cast<int>(type),
                                  fmt::join(enum_names<SchedulerType>, ", ")));
}

/// The schedule of this type. `plan.where` is where `kwargs` come from.
GroupSchedule schedule_of(SchedulerType type, SchedulePlan plan, const nlohmann::json& kwargs) {
  return with_options(
      type, kwargs, plan.where, [&]<typename Options>(const Options& options) -> GroupSchedule {
        if constexpr (requires { options.schedule(plan); }) {
          if (!traits_of(type).begins_after_warmup) return options.schedule(plan);
          const auto warmup = std::exchange(plan.warmup_steps, 0);
          plan.total_steps -= warmup;
          const GroupSchedule schedule = options.schedule(plan);
          return warmup > 0 ? after_warmup(warmup, schedule) : schedule;
        } else {
          throw ArgumentError(
              fmt::format("{}: {} follows a metric and isn't a function of the step", plan.where, type));
        }
      });
}

/// The members of a part besides the options of its type.
struct PartHead {
  ETUDE_STRUCT(PartHead, (SchedulerType, type, "type of the schedule"),
               (double, warmup_steps,
                "steps of warmup; below 1, a fraction of the part's steps" | between(0, 1e15), 0.0));
};

}  // namespace

SchedulePart read_part(const nlohmann::json& value, std::size_t index, std::string_view where) {
  SchedulePart part{.options = value, .where = fmt::format("{}: schedulers[{}]", where, index)};
  if (!value.is_object() || !value.contains("type"))
    throw ArgumentError(fmt::format("{} is {}: must be a JSON object with a type", part.where, value.dump()));
  PartHead head;
  auto given = nlohmann::json::object();
  for (const auto name : field_names<PartHead>()) {
    const auto found = part.options.find(name);
    if (found == part.options.end()) continue;
    given[std::string(name)] = *found;
    part.options.erase(found);
  }
  etude::read_options(given, head, part.where);
  check_fields(head, part.where + ": ");
  if (head.warmup_steps >= 1 && head.warmup_steps != std::floor(head.warmup_steps))
    throw ArgumentError(fmt::format("{}: warmup_steps is {}: must be a whole number, or below 1", part.where,
                                    head.warmup_steps));
  part.type = head.type;
  part.warmup_steps = head.warmup_steps;
  part.where += fmt::format(" ({})", part.type);
  return part;
}

bool SchedulePart::needs_total_steps() const {
  if (0 < warmup_steps && warmup_steps < 1) return true;
  return with_options(type, options, where, [&]<typename Options>(const Options& own) {
    if constexpr (requires { own.needs_total_steps(); })
      return own.needs_total_steps();
    else
      return traits_of(type).needs_total_steps;
  });
}

GroupSchedule SchedulePart::schedule(const SchedulePlan& plan, std::int64_t steps) const {
  return schedule_of(type,
                     {.warmup_steps = absolute_steps(warmup_steps, steps),
                      .total_steps = steps,
                      .learning_rate = plan.learning_rate,
                      .where = where},
                     options);
}

}  // namespace detail

GroupSchedule make_schedule(SchedulerType type, const SchedulePlan& plan, const nlohmann::json& kwargs) {
  SchedulePlan own = plan;
  own.where = fmt::format("{} of {}", plan.where, type);
  return detail::schedule_of(type, own, kwargs);
}

bool needs_total_steps(SchedulerType type, const nlohmann::json& kwargs) {
  return detail::SchedulePart{
      .type = type, .options = kwargs, .where = fmt::format("lr_scheduler_kwargs of {}", type)}
      .needs_total_steps();
}

}  // namespace etude::inline v0
