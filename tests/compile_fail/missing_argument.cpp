// EXPECT: handler_cannot_take_its_event_so_declare_it_as<Listener, void ?\(const StepEnd ?&\)>
#include "etude/dispatch/callback_handler.hpp"

struct StepEnd {
  int step;
};
struct EpochEnd {};
using Raised = etude::events<StepEnd, EpochEnd>;

struct Listener {
#ifdef ETUDE_MISTAKE
  void on(const StepEnd& e, int epoch);  // nothing passes an epoch
#else
  void on(const StepEnd& e, int epoch = 0);
#endif
};

static_assert(etude::CallbackChecks<Raised, false, Listener>::passed());
