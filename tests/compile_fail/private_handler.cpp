// EXPECT: void Listener::on\(const StepEnd&\).* is private
// EXPECT-CLANG: 'on' is a private member of 'Listener'
#include "etude/dispatch/callback_handler.hpp"

struct StepEnd {
  int step;
};
struct EpochEnd {};
using Raised = etude::events<StepEnd, EpochEnd>;

class Listener {
#ifndef ETUDE_MISTAKE
 public:
#endif
  void on(const StepEnd& e);
};

static_assert(etude::CallbackChecks<Raised, false, Listener>::passed());
