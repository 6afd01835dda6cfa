// EXPECT: callback_handles_an_event_that_this_trainer_never_raises<Listener, Mine>
#include "etude/dispatch/callback_handler.hpp"

struct StepEnd {
  int step;
};
struct EpochEnd {};
using Raised = etude::events<StepEnd, EpochEnd>;

struct Mine {};

struct Listener {
  void on(const StepEnd& e);
  void on(const Mine& e);
};

#ifdef ETUDE_MISTAKE
static_assert(etude::CallbackChecks<Raised, true, Listener>::passed());
#else
static_assert(etude::CallbackChecks<etude::events<StepEnd, EpochEnd, Mine>, true, Listener>::passed());
#endif
