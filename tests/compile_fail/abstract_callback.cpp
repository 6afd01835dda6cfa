// EXPECT: callback_is_abstract_so_list_a_class_that_overrides_its_pure_virtual_functions<Listener>
#include "etude/dispatch/callback_handler.hpp"

struct StepEnd {
  int step;
};
struct EpochEnd {};
using Raised = etude::events<StepEnd, EpochEnd>;

struct Listener {
  virtual ~Listener() = default;
#ifdef ETUDE_MISTAKE
  virtual void on(const StepEnd& e) = 0;
#else
  virtual void on(const StepEnd& e);
#endif
};

void compose(etude::CallbackHandler<Listener>& handler) { handler.call_event(StepEnd{1}); }
