// EXPECT: handler_changes_only_a_copy_of_its_event.*<Listener, .*const etude::Log ?&.*, .*etude::Log ?&.*>
// NEEDS: torch
#include "etude/dispatch/callback_handler.hpp"
#include "etude/events.hpp"

struct Listener {
  void on(etude::StepEnd e);
#ifdef ETUDE_MISTAKE
  void on(etude::Log e);
#else
  void on(etude::Log& e);
#endif
};

static_assert(etude::CallbackChecks<etude::Vocabulary, false, Listener>::passed());
