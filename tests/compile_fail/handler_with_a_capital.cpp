// EXPECT: member_means_nothing_so_rename_it<Listener, etude::detail::method::On, etude::detail::method::on>
#include "etude/dispatch/callback_handler.hpp"

struct StepEnd {
  int step;
};
struct EpochEnd {};
using Raised = etude::events<StepEnd, EpochEnd>;

struct Listener {
  void on(const StepEnd& e);
#ifdef ETUDE_MISTAKE
  void On(const EpochEnd& e);
#else
  void on(const EpochEnd& e);
#endif
};

static_assert(etude::CallbackChecks<Raised, false, Listener>::passed());
