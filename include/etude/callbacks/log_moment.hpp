#pragma once

#include <cstdint>

#include "etude/events.hpp"

namespace etude::detail {

/// Whether the log that is asked for at this `StepEnd` or `EpochEnd` will go out: there is one a step at
/// most. What a callback logs then, once, stands in that log as it is, and not as a mean.
/// `last_logged_step` is part of the callback's state.
inline bool log_goes_out(const Context& e, std::int64_t& last_logged_step) {
  if (!e.control.should_log || last_logged_step == e.state.global_step) return false;
  last_logged_step = e.state.global_step;
  return true;
}

}  // namespace etude::detail
