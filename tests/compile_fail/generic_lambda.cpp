// EXPECT: a_lambda_is_not_a_callback_so_write_etude_on_Event_call<.*lambda
#include "etude/dispatch/callback_handler.hpp"
#include "etude/dispatch/filters.hpp"

struct StepEnd {
  int step;
};
struct EpochEnd {};
using Raised = etude::events<StepEnd, EpochEnd>;

void compose() {
  int steps = 0;
  const auto count = [&](const auto&) { ++steps; };
#ifdef ETUDE_MISTAKE
  etude::CallbackHandler handler{count};
#else
  etude::CallbackHandler handler{etude::on<StepEnd>().call(count)};
#endif
  handler.call_event(StepEnd{1});
}
