// EXPECT: events_and_order_are_declared_by_lists_so_write<Listener, etude::events<StepEnd>
#include "etude/dispatch/callback_handler.hpp"

struct StepEnd {
  int step;
};
struct EpochEnd {};
using Raised = etude::events<StepEnd, EpochEnd>;

struct Listener {
#ifdef ETUDE_MISTAKE
  using handles = StepEnd;
#else
  using handles = etude::events<StepEnd>;
#endif
  void on(const StepEnd& e);
};

static_assert(etude::CallbackChecks<Raised, false, Listener>::passed());
