#include "etude/callbacks/interval_timer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "etude/base/counting.hpp"
#include "etude/base/error.hpp"
#include "etude/data/data_loader.hpp"
#include "etude/trainer_state.hpp"
#include "etude/training_arguments.hpp"

namespace etude::inline v0 {

void IntervalTimer::begin(const Context& e, const Interval& interval) {
  const bool is_resumed = e.state.global_step > 0 || !e.state.log_history.empty();
  const bool knows = is_resumed && unit == interval.unit();
  begun_ = clock() - (knows && unit == IntervalUnit::seconds ? passed : 0);
  if (!is_resumed)
    passed = 0;
  else if (!knows)
    passed = position(e, interval);
  else if (unit != IntervalUnit::seconds)
    passed = std::min(passed, position(e, interval));  // A step that was queried may not have been completed.
  unit = interval.unit();
}

void IntervalTimer::begin(const Context& e, const Interval& interval, std::string_view field) {
  if (!interval.is_valid())
    throw ArgumentError(fmt::format("{} is {}: must be {}", field, interval, interval.valid_values()));
  if (interval.unit() == IntervalUnit::tokens && e.args.include_num_input_tokens_seen == InputTokens::no)
    throw ArgumentError(fmt::format(
        "{} is {}: must be in another unit, because include_num_input_tokens_seen is no", field, interval));
  begin(e, interval);
}

bool IntervalTimer::due(const Context& e, const Interval& interval) {
  if (!interval.is_valid()) return false;
  if (unit != interval.unit()) {
    begin(e, interval);
    if (interval.is_of_steps() && passed > 0) --passed;  // this step itself may end an interval
  }
  return passes(e, interval, position(e, interval));
}

bool IntervalTimer::due_in_step(const Context& e, const Interval& interval) {
  if (!interval.is_valid()) return false;
  if (unit != interval.unit()) begin(e, interval);
  return passes(e, interval, position(e, interval) + (interval.is_of_steps() ? 1 : 0));
}

bool IntervalTimer::passes(const Context& e, const Interval& interval, double now) {
  const double before = std::exchange(passed, now);
  // The clocks of several processes differ, so only the first one's counts.
  if (interval.unit() == IntervalUnit::seconds && !e.state.is_world_process_zero) return false;
  if (interval.is_of_steps()) {
    const auto size = static_cast<double>(interval.steps(e.state.max_steps));
    return std::floor(now / size) > std::floor(before / size);
  }
  return detail::intervals_in(now, interval.value()) > detail::intervals_in(before, interval.value());
}

double IntervalTimer::position(const Context& e, const Interval& interval) const {
  const auto& state = e.state;
  switch (interval.unit()) {
    case IntervalUnit::steps:
    case IntervalUnit::share:
      return static_cast<double>(state.global_step);
    case IntervalUnit::epochs:
      return state.epoch;
    case IntervalUnit::samples:
      if (const auto examples = e.train_dataloader ? e.train_dataloader->examples() : std::nullopt)
        return std::round(state.epoch * static_cast<double>(*examples));
      return static_cast<double>(state.global_step) *
             static_cast<double>(e.args.per_device_train_batch_size) *
             static_cast<double>(e.args.world_size()) *
             static_cast<double>(e.args.gradient_accumulation_steps);
    case IntervalUnit::tokens:
      if (state.global_step > 0 && state.num_input_tokens_seen == 0)
        throw ArgumentError(fmt::format(
            "the interval is {}: must be in another unit, because state.num_input_tokens_seen isn't counted",
            interval));
      return static_cast<double>(state.num_input_tokens_seen);
    case IntervalUnit::seconds:
      return clock() - begun_;
  }
  return 0;
}

double IntervalTimer::clock() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace etude::inline v0
