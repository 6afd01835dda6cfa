// EXPECT: handler_parameter_is_not_an_event<Listener, int>
#include "etude/dispatch/callback_handler.hpp"

struct StepEnd {
  int step;
};
struct EpochEnd {};
using Raised = etude::events<StepEnd, EpochEnd>;

struct Listener {
  void on(const StepEnd& e);
#ifdef ETUDE_MISTAKE
  void on(int step);
#endif
};

static_assert(etude::CallbackChecks<Raised, false, Listener>::passed());
