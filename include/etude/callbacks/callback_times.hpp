#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "etude/events.hpp"

namespace etude {

/// Measures how long each callback takes in each event, and prints the table where training ends: the hook
/// profiler of PyTorch Lightning, and ignite's `HandlersTimeProfiler`. The others are called through it only
/// where it is listed; a trainer without it pays nothing. What a callback has others do (an evaluation that
/// it asks for) is part of its time. Callbacks of run time count together, as `RuntimeCallbacks`.
class CallbackTimes {
 public:
  using this_callback = CallbackTimes;
  using times_callbacks = void;

  /// Of one callback in one event.
  struct Row {
    std::string_view callback, event;
    std::int64_t calls = 0;
    std::chrono::steady_clock::duration total{}, longest{};
  };

  /// Calls `deliver` and adds its time, also where it throws.
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

  /// The rows, the longest total first.
  std::vector<Row> rows() const;
  /// The same as a table.
  std::string table() const;

  void on(const TrainBegin& e);
  void on(const TrainEnd& e);

 private:
  void add(std::string_view callback, std::string_view event, std::chrono::steady_clock::duration time);

  std::vector<Row> rows_;
};

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/callbacks/impl/callback_times.ipp"
#endif
