// EXPECT: handler_parameter_is_not_an_event<Listener, std::
#include "etude/dispatch/callback_handler.hpp"

struct StepEnd {
  int step;
};
struct EpochEnd {};
using Raised = etude::events<StepEnd, EpochEnd>;

struct Listener {
#ifdef ETUDE_MISTAKE
  void on(const std::exception_ptr& e);
#else
  void on(const EpochEnd& e);
#endif
};

static_assert(etude::CallbackChecks<Raised, false, Listener>::passed());
