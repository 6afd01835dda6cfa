// EXPECT: handler_must_return_void<Listener, StepEnd>
#include "etude/dispatch/callback_handler.hpp"

struct StepEnd {
  int step;
};
struct EpochEnd {};
using Raised = etude::events<StepEnd, EpochEnd>;

struct Listener {
#ifdef ETUDE_MISTAKE
  bool on(const StepEnd& e);  // nothing would use the result
#else
  void on(const StepEnd& e);
#endif
};

static_assert(etude::CallbackChecks<Raised, false, Listener>::passed());
