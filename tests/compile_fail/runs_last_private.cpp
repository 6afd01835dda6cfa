// EXPECT: order_must_be_declared_public<Recorder, etude::detail::method::runs_last>
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
