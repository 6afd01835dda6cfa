// EXPECT: ignoring return value .*nodiscard
#include "etude/dispatch/callback_handler.hpp"
#include "etude/dispatch/filters.hpp"

#pragma GCC diagnostic error "-Wunused-result"

struct StepEnd {
  int step;
};

void compose() {
#ifdef ETUDE_MISTAKE
  etude::on<StepEnd>().every(2).call([](const StepEnd&) {});
#else
  etude::CallbackHandler handler{etude::on<StepEnd>().every(2).call([](const StepEnd&) {})};
  handler.call_event(StepEnd{1});
#endif
}
