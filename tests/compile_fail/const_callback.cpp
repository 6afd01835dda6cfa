// EXPECT: callback_is_const_so_leave_out_the_const<const Listener>
#include "etude/dispatch/callback_handler.hpp"

struct StepEnd {
  int step;
};
struct EpochEnd {};
using Raised = etude::events<StepEnd, EpochEnd>;

struct Listener {
  void on(const StepEnd& e);
};

#ifdef ETUDE_MISTAKE
static_assert(etude::CallbackChecks<Raised, false, const Listener>::passed());
#else
static_assert(etude::CallbackChecks<Raised, false, Listener>::passed());
#endif
