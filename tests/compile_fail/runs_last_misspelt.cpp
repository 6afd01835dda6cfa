// EXPECT: member_means_nothing_so_rename_it<Recorder, etude::detail::method::run_last,
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
