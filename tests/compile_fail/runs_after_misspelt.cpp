// EXPECT: member_means_nothing_so_rename_it<Listener, etude::detail::method::run_after,
#include "etude/dispatch/callback_handler.hpp"

struct StepEnd {
  int step;
};
struct EpochEnd {};
using Raised = etude::events<StepEnd, EpochEnd>;

struct Other {
  void on(const StepEnd& e);
};
struct Listener {
#ifdef ETUDE_MISTAKE
  using run_after = etude::callbacks<Other>;
#else
  using runs_after = etude::callbacks<Other>;
#endif
  void on(const StepEnd& e);
};

static_assert(etude::CallbackChecks<Raised, false, Other, Listener>::passed());
