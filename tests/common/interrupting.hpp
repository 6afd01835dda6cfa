#pragma once

#include <csignal>
#include <cstdint>

#include "etude/events.hpp"

namespace toy {

/// A program's own handler of SIGTERM, which returns.
struct OwnHandler {
  void (*before)(int) = ::signal(SIGTERM, [](int) {});
  ~OwnHandler() { ::signal(SIGTERM, before); }
};

/// Interrupts a training between the micro-batches of an update.
struct Interrupting {
  std::int64_t after = -1;
  void on(const etude::SubstepEnd& e) {
    if (e.state.global_step == after) ::raise(SIGTERM);
  }
};

}  // namespace toy
