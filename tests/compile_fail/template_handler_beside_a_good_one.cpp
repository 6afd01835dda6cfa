// EXPECT: no_event_of_this_trainer_so_name_your_events_in_using_handles<Listener>
#include "etude/dispatch/callback_handler.hpp"

struct StepEnd {};
struct EpochEnd {};
using Raised = etude::events<StepEnd, EpochEnd>;

struct Mine {};

struct Listener {
#ifndef ETUDE_MISTAKE
  using handles = etude::events<StepEnd, Mine>;
#endif
  void on(const StepEnd&) {}
  template <class E>
    requires std::derived_from<E, Mine>
  void on(const E&) {}
};

struct TakesAnother {
  void on(const StepEnd&) {}
  template <std::same_as<EpochEnd> E>
  void on(E&) {}
};

static_assert(etude::CallbackChecks<Raised, false, TakesAnother, Listener>::passed());
