#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string_view>

#include "etude/metrics/time_by_activity.hpp"

namespace etude::inline v0 {

class FileSystem;
class ActivityTrace;

/// Divides the wall time of a training among its activities: there is one current activity at any moment, and
/// switching reads the clock once. Without a training it does nothing.
class ActivityClock {
  using Clock = std::chrono::steady_clock;

 public:
  class Run;
  class Step;

  ActivityClock();
  ActivityClock(const ActivityClock&) = delete;
  ActivityClock& operator=(const ActivityClock&) = delete;
  ~ActivityClock();

  /// The times of the training under way up to now, or of the last one.
  TimeByActivity times() const;

  /// Whether a trace is recorded.
  bool traces() const { return trace_ != nullptr; }

  /// Stops timing the training, unless that is done already: writes the trace, and prints the table and
  /// advice if `log_level` shows them. Reports errors on the terminal.
  void finish() noexcept;

  /// An activity that lasts as long as this object; the previous activity continues afterwards.
  class Scope {
   public:
    /// `is_shown`: whether the trace contains it.
    Scope(ActivityClock& clock, TimedActivity activity, bool is_shown = true);
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope();

   private:
    void record() const;

    ActivityClock& clock_;
    TimedActivity before_;
    Clock::time_point begin_;
  };

  /// A named part of the trace that lasts as long as this object: a step with its number, an event, a
  /// callback.
  class Slice {
   public:
    static constexpr std::int64_t no_number = -1;

    Slice(ActivityClock& clock, std::string_view name, std::int64_t number = no_number);
    Slice(const Slice&) = delete;
    Slice& operator=(const Slice&) = delete;
    ~Slice();

   private:
    void record() const;

    ActivityClock& clock_;
    std::string_view name_;
    std::int64_t number_ = no_number;
    Clock::time_point begin_;
  };

 private:
  void enter(TimedActivity activity);

  std::array<Clock::duration, enum_names<TimedActivity>.size()> spent_{};
  TimedActivity activity_ = TimedActivity::other;
  Clock::time_point since_;
  std::int64_t steps_ = 0;
  bool runs_ = false;
  std::unique_ptr<ActivityTrace> trace_;
  const TrainingArguments* args_ = nullptr;  // of the training
  FileSystem* files_ = nullptr;
  bool on_cpu_ = true;
};

/// An update step of the training, numbered in the trace.
class ActivityClock::Step : Slice {
 public:
  Step(ActivityClock& clock, std::int64_t number) : Slice(clock, "step", number) { ++clock.steps_; }
};

/// Times a training for as long as this object lives, even if an exception ends the training.
class ActivityClock::Run {
 public:
  /// All of these must outlive this. `outside`: the activity for time outside all others. Throws
  /// CheckpointError if the folder of `trace_file` can't be created.
  Run(ActivityClock& clock, const TrainingArguments& args, FileSystem& files, bool on_cpu,
      TimedActivity outside = TimedActivity::other);
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;
  ~Run() { clock_.finish(); }

 private:
  ActivityClock& clock_;
};

}  // namespace etude::inline v0
