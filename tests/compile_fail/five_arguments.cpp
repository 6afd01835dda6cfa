// EXPECT: handler_takes_one_event_so_declare_it_as_void_on_const_Event<Listener, StepEnd>
#include "etude/dispatch/callback_handler.hpp"

struct StepEnd {};
struct EpochEnd {};
using Raised = etude::events<StepEnd, EpochEnd>;

struct Listener {
#ifdef ETUDE_MISTAKE
  void on(const StepEnd& e, int output, int batch, int index, int loader);
#else
  void on(const StepEnd& e);
#endif
  void on(const EpochEnd& e);
};

static_assert(etude::CallbackChecks<Raised, false, Listener>::passed());
