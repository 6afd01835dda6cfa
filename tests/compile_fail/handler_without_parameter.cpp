// EXPECT: handler_takes_one_event_so_declare_it_as_void_on_const_Event<Listener>
#include "etude/dispatch/callback_handler.hpp"

struct StepEnd {
  int step;
};
struct EpochEnd {};
using Raised = etude::events<StepEnd, EpochEnd>;

struct Listener {
  void on(const StepEnd& e);
#ifdef ETUDE_MISTAKE
  void on();
#else
  void on(const EpochEnd&);
#endif
};

static_assert(etude::CallbackChecks<Raised, false, Listener>::passed());
