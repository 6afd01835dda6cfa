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
  void on(const StepEnd&) {}
};

void raise(etude::CallbackHandler<Listener>& handler) { handler.call_event(StepEnd{1}); }
