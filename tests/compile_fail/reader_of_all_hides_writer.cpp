// EXPECT: writer_is_hidden_by_a_reader_of_its_event.*<Listener, void ?\(StepEnd ?&\)>
#include "etude/dispatch/callback_handler.hpp"

struct StepEnd {
  int step;
};
struct EpochEnd {};
using Raised = etude::events<StepEnd, EpochEnd>;

struct Listener {
  void on(const auto& e);
#ifdef ETUDE_MISTAKE
  void on(StepEnd& e);
#else
  void on(const StepEnd& e);
#endif
};

static_assert(etude::CallbackChecks<Raised, false, Listener>::passed());
