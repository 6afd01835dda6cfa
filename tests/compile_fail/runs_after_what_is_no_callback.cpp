// EXPECT: a_plain_class_is_expected_so_leave_out_const_and_reference<Listener, const Other>
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
  using runs_after = etude::callbacks<const Other>;
#else
  using runs_after = etude::callbacks<Other>;
#endif
  void on(const StepEnd& e);
};

static_assert(etude::CallbackChecks<Raised, false, Other, Listener>::passed());
