// EXPECT: a_plain_class_is_expected_so_leave_out_const_and_reference<Listener, const StepEnd>
#include "etude/dispatch/callback_handler.hpp"

struct StepEnd {};
using Raised = etude::events<StepEnd>;

struct Listener {
#ifdef ETUDE_MISTAKE
  using handles = etude::events<const StepEnd>;
#else
  using handles = etude::events<StepEnd>;
#endif
  void on(const StepEnd& e);
};

static_assert(etude::CallbackChecks<Raised, false, Listener>::passed());
