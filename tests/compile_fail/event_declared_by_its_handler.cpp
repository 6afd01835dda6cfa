// EXPECT: handler_takes_another_type_of_this_name_so_declare_it_as<Listener, .*\(const trainer::StepEnd ?&\)>
#include "etude/dispatch/callback_handler.hpp"

namespace trainer {
struct StepEnd {};
}  // namespace trainer
using Raised = etude::events<trainer::StepEnd>;

struct Listener {
#ifdef ETUDE_MISTAKE
  void on(const struct StepEnd& e);  // declares ::StepEnd
#else
  void on(const struct trainer::StepEnd& e);
#endif
};

static_assert(etude::CallbackChecks<Raised, false, Listener>::passed());
