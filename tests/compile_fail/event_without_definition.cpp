// EXPECT: event_is_only_declared_here_so_include_its_definition<Listener, Verified>
#include "etude/dispatch/callback_handler.hpp"

struct StepEnd {
  int step;
};
struct EpochEnd {};
using Raised = etude::events<StepEnd, EpochEnd>;

struct Verified;
#ifndef ETUDE_MISTAKE
struct Verified {};
#endif

struct Listener {
  void on(const Verified& e);
};

static_assert(etude::CallbackChecks<Raised, false, Listener>::passed());
