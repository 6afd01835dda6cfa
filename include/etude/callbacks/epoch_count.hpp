#pragma once

#include <cmath>
#include <cstdint>
#include <utility>

#include "etude/events.hpp"
#include "etude/reflect/struct.hpp"

namespace etude {

/// Counts the epochs that have come to their end, also where the length of the data isn't known and
/// `state.epoch` is a guess.
struct EpochCount {
  ETUDE_STRUCT(EpochCount, (std::int64_t, ended, "epochs that have come to their end", 0),
               (std::int64_t, last_step, "the step at which the last of them has", 0),
               (bool, has_begun, "it has counted from the beginning, or taken over", false));

  void begin(const TrainBegin& e) {
    if (e.state.global_step == 0) *this = {};
    if (!std::exchange(has_begun, true)) ended = static_cast<std::int64_t>(e.state.epoch + 1e-9);
  }

  /// Whether it is one more: not one that is left before its end, or was counted before.
  bool end(const EpochEnd& e) {
    const bool is_whole = std::abs(e.state.epoch - std::round(e.state.epoch)) < 1e-9;
    const bool is_left = e.control.should_training_stop || e.control.should_epoch_stop ||
                         e.state.global_step >= e.state.max_steps;
    if ((is_left && !is_whole) || e.state.global_step <= last_step) return false;
    last_step = e.state.global_step;
    ++ended;
    return true;
  }

  friend bool operator==(const EpochCount&, const EpochCount&) = default;
};

}  // namespace etude
