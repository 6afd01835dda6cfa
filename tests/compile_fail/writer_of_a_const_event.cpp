// EXPECT: event_is_raised_as_const_but_a_callback_writes_it<.*, Writer, StepEnd>
#include "etude/dispatch/callback_handler.hpp"

struct StepEnd {
  int step;
};
struct EpochEnd {};
using Raised = etude::events<StepEnd, EpochEnd>;

struct Writer {
  void on(StepEnd& e) { ++e.step; }
};

void raise(etude::CallbackHandler<Writer>& handler) {
#ifdef ETUDE_MISTAKE
  const StepEnd event{1};
#else
  StepEnd event{1};
#endif
  handler.call_event(event);
}
