#pragma once

#include <optional>
#include <string_view>

#include "etude/events.hpp"
#include "etude/reflect/interval.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

/// Tells a callback when an interval has passed, once per interval, whether it is queried at every step or
/// only at some. As a member of a callback's `state`, it is saved in checkpoints, and a resumed run continues
/// counting.
///
///     void on(const TrainBegin& e) { state.timer.begin(e, every, "every"); }
///     void on(const StepEnd& e) { if (state.timer.due(e, every)) ...; }
struct IntervalTimer {
  ETUDE_STRUCT(IntervalTimer, (double, passed, "the training's position at the last query", 0.0),
               (std::optional<IntervalUnit>, unit, "its unit; unset before the first query"));

  /// Starts over. In a resumed run, continues from the saved state or, if there is none, starts here.
  void begin(const Context& e, const Interval& interval);

  /// The same for an option named `field`. Throws ArgumentError that names it for an invalid interval, and
  /// for tokens if `args.include_num_input_tokens_seen` doesn't count them.
  void begin(const Context& e, const Interval& interval, std::string_view field);

  /// Whether an interval has ended since the last query; false for an invalid one. Costs no more than a
  /// division or, for an interval of time, reading the clock. Throws ArgumentError for tokens that aren't
  /// counted.
  bool due(const Context& e, const Interval& interval);

  /// Like `due`, but queried once in each step before its end: true if an interval of steps ends with this
  /// step, or if an interval in another unit has ended since the last query.
  bool due_in_step(const Context& e, const Interval& interval);

 private:
  bool passes(const Context& e, const Interval& interval, double now);
  double position(const Context& e, const Interval& interval) const;
  static double clock();

  double begun_ = 0;  // clock time at which counting began, less the seconds counted before a resume
};

}  // namespace etude::inline v0
