// EXPECT: not_a_callback_so_pass_the_callback_itself_by_value<std::reference_wrapper<Listener>
#include "etude/dispatch/callback_handler.hpp"

struct StepEnd {
  int step;
};
struct EpochEnd {};
using Raised = etude::events<StepEnd, EpochEnd>;

struct Listener {
  void on(const StepEnd& e);
};

void compose(Listener& listener) {
#ifdef ETUDE_MISTAKE
  etude::CallbackHandler handler{std::ref(listener)};
#else
  etude::CallbackHandler handler{listener};
#endif
  static_cast<void>(handler);
}
