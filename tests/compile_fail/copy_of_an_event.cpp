// EXPECT: handler_changes_only_a_copy_of_its_event.*<Listener, .*\(const StepEnd ?&\), .*\(StepEnd ?&\)>
#include "etude/dispatch/callback_handler.hpp"

struct StepEnd {
  int step;
};
struct EpochEnd {};
using Raised = etude::events<StepEnd, EpochEnd>;

struct Watched {
  const int& number;
};

struct Listener {
  void on(Watched e);  // has a reference to its data
  void on(EpochEnd e);
#ifdef ETUDE_MISTAKE
  void on(StepEnd e);
#else
  void on(StepEnd& e);
#endif
};

static_assert(etude::CallbackChecks<Raised, false, Listener>::passed());
