// EXPECT: method_is_never_called\w+<Listener, etude::detail::method::on_step_end, void ?\(const etude::Step
#include "etude/dispatch/callback_handler.hpp"

struct StepEnd {
  int step;
};
struct EpochEnd {};
using Raised = etude::events<StepEnd, EpochEnd>;

struct Listener {
#ifdef ETUDE_MISTAKE
  void on_step_end(const StepEnd& e);
#else
  void on(const StepEnd& e);
#endif
};

static_assert(etude::CallbackChecks<Raised, false, Listener>::passed());
