// EXPECT: handlers_for_events_of_your_own_so_declare_using_handles_etude_events<Listener, (Mine|Yours)>
#include "etude/dispatch/runtime_callbacks.hpp"

struct StepEnd {};
struct Mine {};
struct Yours {};

struct Listener final {
#ifndef ETUDE_MISTAKE
  using handles = etude::events<StepEnd, Mine, Yours>;
#endif
  void on(const StepEnd&) {}
  void on(const Mine&) {}
  void on(const Yours&) {}
};

void add(etude::RuntimeCallbacks& callbacks) { callbacks.add(etude::events<StepEnd>{}, Listener{}); }
