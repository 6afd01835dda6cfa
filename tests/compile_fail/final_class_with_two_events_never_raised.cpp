// EXPECT: callback_handles_an_event_that_this_trainer_never_raises<Listener, (Mine|Yours)>
#include "etude/dispatch/callback_handler.hpp"

struct StepEnd {};
struct EpochEnd {};
using Raised = etude::events<StepEnd, EpochEnd>;

struct Mine {};
struct Yours {};

struct Listener final {
  void on(const StepEnd&) {}
  void on(const Mine&) {}
  void on(const Yours&) {}
};

#ifdef ETUDE_MISTAKE
static_assert(etude::CallbackChecks<Raised, true, Listener>::passed());
#else
static_assert(etude::CallbackChecks<etude::events<StepEnd, Mine, Yours>, true, Listener>::passed());
#endif
