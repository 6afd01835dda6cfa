#include "etude/callbacks/log_moment.hpp"

#include <cstdint>

namespace etude::inline v0::detail {

bool log_goes_out(const Context& e, std::int64_t& last_logged_step) {
  if (!e.control.should_log || last_logged_step == e.state.global_step) return false;
  last_logged_step = e.state.global_step;
  return true;
}

}  // namespace etude::inline v0::detail
