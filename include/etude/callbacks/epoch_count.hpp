#pragma once

#include <cstdint>
#include <utility>

#include "etude/base/counting.hpp"
#include "etude/events.hpp"
#include "etude/reflect/struct.hpp"

namespace etude {

/// Counts the epochs that are done, also where the length of the data isn't known and `state.epoch` is a
/// guess. For callbacks that have one among their members.
struct EpochCount {
  ETUDE_STRUCT(EpochCount, (std::int64_t, ended, "epochs that are done", 0),
               (std::int64_t, last_step, "the step at which the last of them ended", 0),
               (bool, has_begun, "it has counted from the beginning, or taken over", false));

  void begin(const TrainBegin& e) {
    if (e.state.global_step == 0) *this = {};
    if (!std::exchange(has_begun, true)) ended = static_cast<std::int64_t>(e.state.epoch + 1e-9);
  }

  /// Of an EpochEnd or TrainingRunEpochEnd: whether an epoch is done, and had steps.
  template <class End>
  bool end(const End& e) {
    if (!e.is_done) return false;
    detail::count_up(ended);
    return std::exchange(last_step, e.state.global_step) < e.state.global_step;
  }

  friend bool operator==(const EpochCount&, const EpochCount&) = default;
};

}  // namespace etude
