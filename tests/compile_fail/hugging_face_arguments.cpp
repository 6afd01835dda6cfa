// EXPECT: handler_cannot_take_its_event_so_declare_it_as<Listener, void ?\(const EpochEnd ?&\)>
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
  void on(const Arguments& args, const State& state, Control& control, const EpochEnd& e);
#else
  void on(const EpochEnd& e);
#endif
};

static_assert(etude::CallbackChecks<Raised, false, Listener>::passed());
