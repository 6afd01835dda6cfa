// EXPECT: runs_after_cycle<(First, Second|Second, First)>
#include "etude/dispatch/callback_handler.hpp"

struct StepEnd {
  int step;
};
struct EpochEnd {};
using Raised = etude::events<StepEnd, EpochEnd>;

struct Second;

struct First {
#ifdef ETUDE_MISTAKE
  using runs_after = etude::callbacks<Second>;
#endif
  void on(const StepEnd& e);
};
struct Second {
  using runs_after = etude::callbacks<First>;
  void on(const StepEnd& e);
};

static_assert(etude::CallbackChecks<Raised, false, First, Second>::passed());
