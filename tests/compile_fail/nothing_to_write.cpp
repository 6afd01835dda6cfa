// EXPECT: event_has_nothing_to_write_so_declare_the_handler_as<Listener, void ?\(const etude::StepEnd ?&\)>
// NEEDS: torch
#include "etude/dispatch/callback_handler.hpp"
#include "etude/events.hpp"

struct Listener {
#ifdef ETUDE_MISTAKE
  void on(etude::StepEnd& e);
#else
  void on(const etude::StepEnd& e);
#endif
  void on(etude::Log& e);
};

static_assert(etude::CallbackChecks<etude::Vocabulary, false, Listener>::passed());
