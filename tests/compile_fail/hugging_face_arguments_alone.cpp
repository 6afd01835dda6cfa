// EXPECT: handler_takes_one_event_so_declare_it_as_void_on_const_Event<Listener, Arguments>
#include "etude/dispatch/callback_handler.hpp"

struct StepEnd {
  int step;
};
struct EpochEnd {};
using Raised = etude::events<StepEnd, EpochEnd>;

struct Arguments {};
struct State {};
struct Control {};

struct Listener {
  void on(const StepEnd& e);
#ifdef ETUDE_MISTAKE
  void on(const Arguments& args, const State& state, Control& control);
#else
  void on(const Arguments& args, int state = 0, int control = 0);
#endif
};

static_assert(etude::CallbackChecks<Raised, false, Listener>::passed());
