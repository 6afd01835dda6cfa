#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "etude/events.hpp"

namespace etude::inline v0 {

/// Measures how long each callback takes in each event, and prints a table at the end of training, like
/// PyTorch Lightning's hook profiler and Ignite's `HandlersTimeProfiler`. A trainer without this callback
/// pays nothing. Work that a callback triggers, such as an evaluation that it requests, counts toward that
/// callback's time. Run-time callbacks are timed together, as `RuntimeCallbacks`.
class CallbackTimes {
 public:
  /// One callback in one event.
  struct Row {
    std::string_view callback, event;
    std::int64_t calls = 0;
    std::chrono::steady_clock::duration total{}, longest{};
  };

  /// Calls `deliver` and adds its time, even if it throws.
  template <class Deliver>
  void time(std::string_view callback, std::string_view event, Deliver deliver) {
    const struct Stopwatch {
      CallbackTimes& times;
      std::string_view callback, event;
      std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
      ~Stopwatch() { times.add(callback, event, std::chrono::steady_clock::now() - begin); }
    } stopwatch{*this, callback, event};
    deliver();
  }

  /// The rows, largest total first.
  std::vector<Row> rows() const;
  /// The rows as a table.
  std::string table() const;

  void on(const TrainBegin& e);
  void on(const TrainEnd& e);

 private:
  void add(std::string_view callback, std::string_view event, std::chrono::steady_clock::duration time);

  std::vector<Row> rows_;
};

}  // namespace etude::inline v0
