// EXPECT: runs_last_must_be_public_so_write_static_constexpr_bool_runs_last<Recorder>
#include "etude/dispatch/callback_handler.hpp"

struct StepEnd {
  int step;
};
using Raised = etude::events<StepEnd>;

class Recorder {
#ifndef ETUDE_MISTAKE
 public:
#endif
  static constexpr bool runs_last = true;

 public:
  void on(const StepEnd& e);
};

static_assert(etude::CallbackChecks<Raised, false, Recorder>::passed());
