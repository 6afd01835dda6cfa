// EXPECT: has_an_on_that_takes_no_event_of_this_trainer_so_name_your_events_in_using_handles<Listener>
#include "etude/dispatch/callback_handler.hpp"

struct StepEnd {
  int step;
};
struct EpochEnd {};
using Raised = etude::events<StepEnd, EpochEnd>;

template <class T>
struct Measured {
  T value;
};
struct Listener {
#ifndef ETUDE_MISTAKE
  using handles = etude::events<Measured<int>>;
#endif
  template <class T>
  void on(const Measured<T>& e);
};

static_assert(etude::CallbackChecks<Raised, false, Listener>::passed());
