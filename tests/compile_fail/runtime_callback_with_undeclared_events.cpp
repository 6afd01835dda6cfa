// EXPECT: handlers_for_events_of_your_own_so_declare_using_handles_etude_events<Listener, Mine>
#include "etude/dispatch/callback_handler.hpp"
#include "etude/dispatch/runtime_callbacks.hpp"

struct StepEnd {
  int step;
};
struct EpochEnd {};
using Raised = etude::events<StepEnd, EpochEnd>;

struct Mine {};
struct MineToo {};

struct Listener {
#ifndef ETUDE_MISTAKE
  using handles = etude::events<StepEnd, Mine, MineToo>;
#endif
  void on(const StepEnd&) {}
  void on(const Mine&) {}
  void on(const MineToo&) {}
};

void add(etude::RuntimeCallbacks& callbacks) { callbacks.add(Raised{}, Listener{}); }
