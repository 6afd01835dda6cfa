// EXPECT: ignoring .*nodiscard
#include "etude/dispatch/runtime_callbacks.hpp"

#pragma GCC diagnostic error "-Wunused-result"
#pragma GCC diagnostic error "-Wunused-value"

void add(etude::CallbackHandle handle) {
#ifdef ETUDE_MISTAKE
  etude::ScopedCallback{handle};
#else
  const etude::ScopedCallback scoped{handle};
#endif
}
