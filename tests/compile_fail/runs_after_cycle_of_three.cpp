// EXPECT: runs_after_cycle<(First|Second|Third), (First|Second|Third)>
#include "etude/dispatch/callback_handler.hpp"

struct StepEnd {
  int step;
};
struct EpochEnd {};
using Raised = etude::events<StepEnd, EpochEnd>;

struct Second;
struct Third;

struct First {
#ifdef ETUDE_MISTAKE
  using runs_after = etude::callbacks<Third>;
#endif
  void on(const StepEnd& e);
};
struct Second {
  using runs_after = etude::callbacks<First>;
  using runs_before = etude::callbacks<Third>;
  void on(const StepEnd& e);
};
struct Third {
  void on(const StepEnd& e);
};

static_assert(etude::CallbackChecks<Raised, false, First, Second, Third>::passed());
