#pragma once

#include <cstdint>
#include <utility>

#include "etude/callbacks/epoch_place.hpp"
#include "etude/events.hpp"
#include "etude/reflect/struct.hpp"

namespace etude {

/// Counts the epochs that have come to their end, also where the length of the data isn't known and
/// `state.epoch` is a guess. One that `should_epoch_stop` ends after some steps is over as any other.
struct EpochCount {
  ETUDE_STRUCT(EpochCount, (std::int64_t, ended, "epochs that have come to their end", 0),
               (std::int64_t, last_step, "the step at which the last of them has", 0),
               (bool, has_begun, "it has counted from the beginning, or taken over", false));

  void begin(const TrainBegin& e) {
    if (e.state.global_step == 0) *this = {};
    if (!std::exchange(has_begun, true)) ended = static_cast<std::int64_t>(e.state.epoch + 1e-9);
  }

  /// Whether it is one more: not one that is to go on when the training is resumed, or was counted before.
  bool end(const EpochEnd& e) {
    if (EpochPlace::is_cut_short(e) || e.state.global_step <= last_step) return false;
    last_step = e.state.global_step;
    ++ended;
    return true;
  }

  friend bool operator==(const EpochCount&, const EpochCount&) = default;
};

}  // namespace etude
