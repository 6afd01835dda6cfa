// EXPECT: callback_handles_no_event_of_this_trainer_so_write_void_on_const_Event<Listener>
#include "etude/callback_handler.hpp"

struct StepEnd {
  int step;
};
struct EpochEnd {};
using Raised = etude::events<StepEnd, EpochEnd>;

struct Listener {
#ifdef ETUDE_MISTAKE
  void on_step_end(const StepEnd& e);
#else
  void on(const StepEnd& e);
#endif
};

static_assert(etude::CallbackChecks<Raised, false, Listener>::passed());
