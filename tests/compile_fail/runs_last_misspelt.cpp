// EXPECT: run_last_means_nothing_so_write_static_constexpr_bool_runs_last<Recorder>
#include "etude/dispatch/callback_handler.hpp"

struct StepEnd {
  int step;
};
using Raised = etude::events<StepEnd>;

struct Recorder {
#ifdef ETUDE_MISTAKE
  static constexpr bool run_last = true;
#else
  static constexpr bool runs_last = true;
#endif
  void on(const StepEnd& e);
};

static_assert(etude::CallbackChecks<Raised, false, Recorder>::passed());
