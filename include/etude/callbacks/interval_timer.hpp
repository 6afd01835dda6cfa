#pragma once

#include <optional>
#include <string_view>

#include "etude/events.hpp"
#include "etude/reflect/interval.hpp"
#include "etude/reflect/struct.hpp"

namespace etude {

/// Tells when an interval has passed, for a callback: once each time, be it asked at every step or only at
/// some. As a member that is declared with ETUDE_STRUCT it goes into checkpoints, and a run that is resumed
/// goes on counting.
///
///     void on(const TrainBegin& e) { timer.begin(e, every, "every"); }
///     void on(const StepEnd& e) { if (timer.due(e, every)) ...; }
struct IntervalTimer {
  ETUDE_STRUCT(IntervalTimer, (double, passed, "where the training was when it was asked last", 0.0),
               (std::optional<IntervalUnit>, unit, "of that; unset where it wasn't asked yet"));

  /// Begins anew, or goes on where a run is resumed: from what it knows of that, or else from here.
  void begin(const Context& e, const Interval& interval);

  /// Likewise, for an option called `field`. Throws ArgumentError that names it for an interval that isn't
  /// valid, and for tokens where `args.include_num_input_tokens_seen` doesn't count them.
  void begin(const Context& e, const Interval& interval, std::string_view field);

  /// Whether an interval has ended since it was asked last. Costs no more than a division, and for a time a
  /// look at the clock. Never, for one that isn't valid. Throws ArgumentError for tokens that nobody counts.
  bool due(const Context& e, const Interval& interval);

  /// As `due`, asked once in each step before its end: whether an interval of steps ends with it, or one in
  /// another unit has ended before.
  bool due_in_step(const Context& e, const Interval& interval);

 private:
  bool passes(const Context& e, const Interval& interval, double now);
  double position(const Context& e, const Interval& interval) const;
  static double clock();

  double begun_ = 0;  // on the clock, less the seconds before
};

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/callbacks/impl/interval_timer.ipp"
#endif
