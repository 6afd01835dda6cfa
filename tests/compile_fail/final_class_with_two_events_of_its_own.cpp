// EXPECT: no_event_of_this_trainer_so_name_your_events_in_using_handles<Listener, (Mine|Yours)>
#include "etude/dispatch/callback_handler.hpp"

struct StepEnd {};
struct EpochEnd {};
using Raised = etude::events<StepEnd, EpochEnd>;

struct Mine {};
struct Yours {};

struct Listener final {
#ifndef ETUDE_MISTAKE
  using handles = etude::events<Mine, Yours>;
#endif
  void on(const Mine&) {}
  void on(const Yours&) {}
};

static_assert(etude::CallbackChecks<Raised, false, Listener>::passed());
