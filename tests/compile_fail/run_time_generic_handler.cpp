// EXPECT: handlers_for_events_of_your_own_so_declare_using_handles_etude_events<Listener>
#include "etude/dispatch/runtime_callbacks.hpp"

struct StepEnd {
  int step;
};
struct EpochEnd {};
using Raised = etude::events<StepEnd, EpochEnd>;

struct Listener {
#ifndef ETUDE_MISTAKE
  using handles = Raised;
#endif
  void on(const auto&) {}
};

void add(etude::RuntimeCallbacks& callbacks) { callbacks.add(Raised{}, Listener{}); }
