#pragma once

#include <cstdint>
#include <utility>

#include "etude/base/counting.hpp"
#include "etude/events.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

/// Counts completed epochs, even if the data's length is unknown and `state.epoch` is an estimate. Make it a
/// member of a callback.
struct EpochCount {
  ETUDE_STRUCT(EpochCount, (std::int64_t, ended, "completed epochs", 0),
               (std::int64_t, last_step, "the step at which the last one ended", 0),
               (bool, has_begun, "whether it has counted from the beginning or been restored", false));

  void begin(const TrainBegin& e) {
    if (e.state.global_step == 0) *this = {};
    if (!std::exchange(has_begun, true)) ended = static_cast<std::int64_t>(e.state.epoch + 1e-9);
  }

  /// Called at EpochEnd or TrainingRunEpochEnd. Returns true if the epoch is complete and had steps.
  template <class End>
  bool end(const End& e) {
    if (!e.is_done) return false;
    detail::count_up(ended);
    return std::exchange(last_step, e.state.global_step) < e.state.global_step;
  }

  friend bool operator==(const EpochCount&, const EpochCount&) = default;
};

}  // namespace etude::inline v0
