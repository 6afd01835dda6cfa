// EXPECT: order_must_be_declared_public<Listener, etude::detail::method::runs_before>
#include "etude/dispatch/callback_handler.hpp"

struct StepEnd {
  int step;
};
struct EpochEnd {};
using Raised = etude::events<StepEnd, EpochEnd>;

struct Other {
  void on(const StepEnd& e);
};
class Listener {
#ifndef ETUDE_MISTAKE
 public:
#endif
  using runs_before = etude::callbacks<Other>;

 public:
  void on(const StepEnd& e);
};

static_assert(etude::CallbackChecks<Raised, false, Listener, Other>::passed());
