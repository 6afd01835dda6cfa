// EXPECT: handler_parameter_is_not_an_event<Listener, std::shared_ptr<StepEnd> ?>
#include <memory>

#include "etude/dispatch/callback_handler.hpp"

struct StepEnd {
  int step;
};
struct EpochEnd {};
using Raised = etude::events<StepEnd, EpochEnd>;

struct Listener {
#ifdef ETUDE_MISTAKE
  void on(std::shared_ptr<StepEnd> e);
#else
  void on(const StepEnd& e);
#endif
  void on(const EpochEnd& e);
};

static_assert(etude::CallbackChecks<Raised, false, Listener>::passed());
