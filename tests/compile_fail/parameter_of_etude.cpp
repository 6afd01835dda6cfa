// EXPECT: handler_parameter_is_not_an_event<Listener, etude::ErrorOrigin>
#include "etude/dispatch/callback_handler.hpp"

struct StepEnd {
  int step;
};
struct EpochEnd {};
using Raised = etude::events<StepEnd, EpochEnd>;

struct Mine {};

struct Listener {
#ifdef ETUDE_MISTAKE
  void on(const etude::ErrorOrigin& e);
#else
  void on(const Mine& e);
#endif
};

static_assert(etude::CallbackChecks<Raised, false, Listener>::passed());
