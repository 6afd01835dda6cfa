// EXPECT: member_means_nothing_so_rename_it<Listener, etude::detail::method::handle,
#include "etude/dispatch/callback_handler.hpp"

struct StepEnd {
  int step;
};
struct EpochEnd {};
using Raised = etude::events<StepEnd, EpochEnd>;

struct Listener {
#ifdef ETUDE_MISTAKE
  using handle = etude::events<StepEnd>;
#else
  using handles = etude::events<StepEnd>;
#endif
  void on(const StepEnd& e);
};

static_assert(etude::CallbackChecks<Raised, false, Listener>::passed());
