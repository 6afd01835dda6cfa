// EXPECT: method_is_never_called_so_write_on_for_its_event_or_declare_handles<Listener, etude::detail::method::on_train_epoch_end, void ?\(const etude::EpochEnd ?&\)>
#include "etude/callback_handler.hpp"

struct StepEnd {
  int step;
};
struct EpochEnd {};
using Raised = etude::events<StepEnd, EpochEnd>;

struct Listener {
#ifndef ETUDE_MISTAKE
  using handles = etude::events<StepEnd>;
#endif
  void on(const StepEnd& e);

 private:
  void on_train_epoch_end();
};

static_assert(etude::CallbackChecks<Raised, false, Listener>::passed());
