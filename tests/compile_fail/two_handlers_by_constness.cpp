// EXPECT: two_handlers_for_one_event_so_keep_only_one<Listener, EpochEnd>
#include "etude/dispatch/callback_handler.hpp"

struct StepEnd {
  int step;
};
struct EpochEnd {};
using Raised = etude::events<StepEnd, EpochEnd>;

struct Listener {
  void on(const StepEnd& e);
  void on(const EpochEnd& e);
#ifdef ETUDE_MISTAKE
  void on(const EpochEnd& e) const;
#endif
};

/// One handler, though it takes events of either constness.
struct Counter {
  template <class E>
    requires requires(E& e) { e.step; }
  void on(E& e);
};

static_assert(etude::CallbackChecks<Raised, false, Listener, Counter>::passed());
