// EXPECT: callback_handles_no_event_of_this_trainer_so_write_void_on_const_Event<Listener>
#include "etude/dispatch/callback_handler.hpp"

struct StepEnd {
  int step;
};
struct EpochEnd {};
using Raised = etude::events<StepEnd, EpochEnd>;

struct Listener {
#ifndef ETUDE_MISTAKE
  using handles = etude::events<>;
#endif
  int shared_by_others = 0;
};

static_assert(etude::CallbackChecks<Raised, false, Listener>::passed());
