#pragma once

#include <cstdint>
#include <utility>

#include "etude/events.hpp"

namespace etude::inline v0::detail {

/// Whether the log requested at this `StepEnd` or `EpochEnd` will be written; there is at most one per step.
/// If so, a value that a callback logs now appears in that log as it is, not averaged. `last_logged_step` is
/// part of the callback's state.
inline bool log_goes_out(const Context& e, std::int64_t& last_logged_step) {
  return e.control.should_log && std::exchange(last_logged_step, e.state.global_step) != e.state.global_step;
}

}  // namespace etude::inline v0::detail
