// EXPECT: handler_is_for_an_event_that_handles_does_not_name<Listener, EpochEnd>
#include "etude/dispatch/callback_handler.hpp"

struct StepEnd {
  int step;
};
struct EpochEnd {};
using Raised = etude::events<StepEnd, EpochEnd>;

struct Listener {
#ifdef ETUDE_MISTAKE
  using handles = etude::events<StepEnd>;
#else
  using handles = etude::events<StepEnd, EpochEnd>;
#endif
  void on(const StepEnd& e);
  void on(const EpochEnd& e);
};

static_assert(etude::CallbackChecks<Raised, false, Listener>::passed());
