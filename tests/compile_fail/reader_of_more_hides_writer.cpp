// EXPECT: writer_is_hidden_by_a_reader_of_its_event.*<Listener, void ?\(Log ?&\)>
#include "etude/dispatch/callback_handler.hpp"

struct StepEnd {
  int step;
};
struct EpochEnd {};
using Raised = etude::events<StepEnd, EpochEnd>;

struct Context {};
struct Log : Context {
  double loss;
};

struct Listener {
  void on(const Context& e);
#ifdef ETUDE_MISTAKE
  void on(Log& e);
#else
  void on(const Log& e);
#endif
};

static_assert(etude::CallbackChecks<etude::events<StepEnd, Log>, false, Listener>::passed());
