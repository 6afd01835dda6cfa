// EXPECT: method_is_never_called\w+<Listener, etude::detail::method::on_train_epoch_end, void ?\(const
// ALONE: it adds to the namespace etude
#include "etude/dispatch/callback_handler.hpp"

namespace etude::inline v0 {
struct StepEnd {
  int step;
};
struct EpochEnd {};
}  // namespace etude::inline v0
using Raised = etude::events<etude::StepEnd, etude::EpochEnd>;

struct Listener {
#ifndef ETUDE_MISTAKE
  using handles = etude::events<etude::StepEnd>;
#endif
  void on(const etude::StepEnd& e);

 private:
  void on_train_epoch_end();
};

// A handler may call a method of such a name.
struct Helped {
  void on(const etude::EpochEnd&) { on_train_epoch_end(); }

 private:
  void on_train_epoch_end();
};

static_assert(etude::CallbackChecks<Raised, false, Helped, Listener>::passed());
