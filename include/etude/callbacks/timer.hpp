#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "etude/events.hpp"
#include "etude/reflect/enum.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

/// When TimerCallback checks the clock: at the end of each `step`, or of each `epoch`.
ETUDE_ENUM(TimerInterval, step, epoch);

/// Parses a duration into seconds: a time as Interval reads it ("1h30m", "30s", "2d"), "DD:HH:MM:SS"
/// ("00:12:00:00" is twelve hours), or a number of seconds ("90", "0.5"). Throws ArgumentError for anything
/// else.
double parse_duration(std::string_view text);

/// Parses a point in time: "2026-05-31T18:00:00Z", or with a time zone's offset, "2026-05-31T20:00:00+02:00"
/// (ISO 8601). Throws ArgumentError for anything else.
std::chrono::system_clock::time_point parse_deadline(std::string_view text);

/// Ends the training after `duration`, or at a `deadline`. Follows Lightning's Timer, with the same
/// arguments; the deadline comes from torchtnt's TimeLimitInterrupter. Checkpoints save the elapsed time, so
/// earlier runs count. A run that is resumed with no time left stops before its first step. Unlike
/// Lightning's, it gives a reason for the stop: the training ends by `request_stop`, with a last evaluation
/// and checkpoint.
///
/// With neither, it only measures the time. Throws ArgumentError at TrainBegin for invalid text.
struct TimerCallback {
  ETUDE_STRUCT(TimerCallback,
               (std::string, duration, "how long to train: 1h30m, DD:HH:MM:SS, or seconds; empty: no limit"),
               (std::string, deadline, "when to stop: YYYY-MM-DDTHH:MM:SSZ, or +HH:MM for Z; empty: never"),
               (TimerInterval, interval, "check the clock after each step, or each epoch",
                TimerInterval::step));

  struct State {
    ETUDE_STRUCT(State, (double, time_elapsed, "seconds of training, including earlier runs", 0.0));
  };
  State state = {};

  void on(const TrainBegin& e);
  void on(const StepEnd& e);
  void on(const EvaluateEnd&) { measure(); }
  void on(const EpochEnd& e);
  void on(const TrainEnd&);

  /// The remaining seconds; nullopt without a limit, negative when the time is up.
  std::optional<double> time_remaining() const;

  std::optional<double> limit = {};                                 ///< `duration`, in seconds
  std::optional<std::chrono::system_clock::time_point> until = {};  ///< `deadline`
  std::optional<std::chrono::steady_clock::time_point> mark = {};  ///< `state.time_elapsed` counts up to here

 private:
  void measure();
  void stop_when_time_is_up(const Context& e);
};

}  // namespace etude::inline v0
