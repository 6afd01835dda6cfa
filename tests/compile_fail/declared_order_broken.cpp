// EXPECT: callback_must_stand_after<First, Second>
#include "etude/dispatch/callback_handler.hpp"

struct StepEnd {
  int step;
};
struct EpochEnd {};
using Raised = etude::events<StepEnd, EpochEnd>;

struct First {
  void on(const StepEnd& e);
};
struct Second {
  using runs_before = etude::callbacks<First>;
  void on(const StepEnd& e);
};

#ifdef ETUDE_MISTAKE
static_assert(etude::CallbackChecks<Raised, false, First, Second>::passed());
#else
static_assert(etude::CallbackChecks<Raised, false, Second, First>::passed());
#endif
