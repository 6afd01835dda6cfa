// EXPECT: call_event_takes_the_event_itself_so_pass_a_struct<StepEnd ?\*>
#include "etude/dispatch/callback_handler.hpp"

struct StepEnd {};

struct Listener {
  void on(const StepEnd&) {}
};

void raise(etude::CallbackHandler<Listener>& handler, StepEnd& event) {
#ifdef ETUDE_MISTAKE
  handler.call_event(&event);
#else
  handler.call_event(event);
#endif
}
