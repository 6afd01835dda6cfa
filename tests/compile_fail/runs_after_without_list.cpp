// EXPECT: events_and_order_are_declared_by_lists_so_write<Listener, etude::callbacks<Other>
#include "etude/dispatch/callback_handler.hpp"

struct StepEnd {
  int step;
};
struct EpochEnd {};
using Raised = etude::events<StepEnd, EpochEnd>;

struct Other {
  void on(const StepEnd& e);
};
struct Listener {
#ifdef ETUDE_MISTAKE
  using runs_after = Other;
#else
  using runs_after = etude::callbacks<Other>;
#endif
  void on(const StepEnd& e);
};

static_assert(etude::CallbackChecks<Raised, false, Other, Listener>::passed());
