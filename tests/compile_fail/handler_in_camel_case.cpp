// EXPECT: method_is_never_called\w+<Listener, etude::detail::method::onStepEnd, void ?\(const etude::St
// ALONE: it adds to the namespace etude
#include "etude/dispatch/callback_handler.hpp"

namespace etude::inline v0 {
struct StepEnd {
  int step;
};
struct EpochEnd {};
}  // namespace etude::inline v0

struct Listener {
  void on(const etude::EpochEnd& e);
#ifndef ETUDE_MISTAKE
  void on(const etude::StepEnd& e) { onStepEnd(e); }
#endif
  void onStepEnd(const etude::StepEnd& e);
};

static_assert(
    etude::CallbackChecks<etude::events<etude::StepEnd, etude::EpochEnd>, false, Listener>::passed());
