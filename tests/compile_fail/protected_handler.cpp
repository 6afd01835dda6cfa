// EXPECT: handler_is_private_or_protected_so_make_it_public<Listener, void ?\(const EpochEnd ?&\)>
#include "etude/dispatch/callback_handler.hpp"

struct StepEnd {
  int step;
};
struct EpochEnd {};
using Raised = etude::events<StepEnd, EpochEnd>;

class Listener {
 public:
  void on(const StepEnd& e);
#ifdef ETUDE_MISTAKE
 protected:
#endif
  void on(const EpochEnd& e);
};

static_assert(etude::CallbackChecks<Raised, false, Listener>::passed());
