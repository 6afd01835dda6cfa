// EXPECT: callback_cannot_be_moved_into_the_trainer_so_give_it_a_move_constructor<Listener>
#include "etude/dispatch/callback_handler.hpp"

struct StepEnd {
  int step;
};
struct EpochEnd {};
using Raised = etude::events<StepEnd, EpochEnd>;

struct Listener {
  Listener() = default;
#ifdef ETUDE_MISTAKE
  Listener(const Listener&) = delete;
#else
  Listener(Listener&&) = default;
#endif
  void on(const StepEnd& e);
};

void compose(etude::CallbackHandler<Listener>& handler) { handler.call_event(StepEnd{1}); }
