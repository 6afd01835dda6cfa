#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "etude/events.hpp"
#include "etude/reflect/enum.hpp"
#include "etude/reflect/struct.hpp"

namespace etude {

/// Where TimerCallback looks at the clock: at the end of each `step`, or of each `epoch`.
ETUDE_ENUM(TimerInterval, step, epoch);

/// The seconds of a duration in words: a time as Interval reads it ("1h30m", "30s", "2d"), "DD:HH:MM:SS"
/// ("00:12:00:00" is twelve hours), or a number of seconds ("90", "0.5"). Throws ArgumentError for anything
/// else.
double parse_duration(std::string_view text);

/// A moment in words: "2026-05-31T18:00:00Z", or with the offset of a time zone,
/// "2026-05-31T20:00:00+02:00" (ISO 8601). Throws ArgumentError for anything else.
std::chrono::system_clock::time_point parse_deadline(std::string_view text);

/// Ends the training when it has taken as long as `duration`, or at a `deadline`: Lightning's Timer, whose
/// arguments these are, with torchtnt's TimeLimitInterrupter, which has the deadline. The time that the
/// runs before have taken is saved with checkpoints, and counts. A run that is resumed with its time used
/// up stops before its first step. Unlike Lightning's, the reason of the stop is known: the training ends
/// by `request_stop`, with its last evaluation and checkpoint.
///
/// Without either it only measures. Throws ArgumentError at TrainBegin for what it can't read.
struct TimerCallback {
  using this_callback = TimerCallback;
  ETUDE_STRUCT(TimerCallback,
               (std::string, duration,
                "how long to train: 1h30m, DD:HH:MM:SS, or seconds; empty: as long as it takes"),
               (std::string, deadline, "when to stop: YYYY-MM-DDTHH:MM:SSZ, or +HH:MM for Z; empty: never"),
               (TimerInterval, interval, "look at the clock after each step, or each epoch",
                TimerInterval::step),
               (double, time_elapsed, "seconds of training, those before it was resumed counted", 0.0));

  void on(const TrainBegin& e);
  void on(const StepEnd& e);
  void on(const EvaluateEnd&) { measure(); }
  void on(const EpochEnd& e);
  void on(const TrainEnd&);

  /// Seconds that are left; nothing without a limit, and below 0 when the time is up.
  std::optional<double> time_remaining() const;

  std::optional<double> limit = {};                                 ///< `duration`, in seconds
  std::optional<std::chrono::system_clock::time_point> until = {};  ///< `deadline`
  std::optional<std::chrono::steady_clock::time_point> mark = {};   ///< up to where `time_elapsed` counts

 private:
  void measure();
  void stop_when_time_is_up(const Context& e);
};

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/callbacks/impl/timer.ipp"
#endif
