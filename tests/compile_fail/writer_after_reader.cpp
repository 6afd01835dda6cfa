// EXPECT: writer_stands_after_a_reader_of_the_event_so_move_it_before<Writer, Reader, StepEnd>
#include "etude/dispatch/callback_handler.hpp"

struct StepEnd {
  int step;
};
struct EpochEnd {};
using Raised = etude::events<StepEnd, EpochEnd>;

struct Reader {
  void on(const StepEnd& e);
};
struct Writer {
  void on(StepEnd& e);
};

#ifdef ETUDE_MISTAKE
static_assert(etude::CallbackChecks<Raised, false, Reader, Writer>::passed());
#else
static_assert(etude::CallbackChecks<Raised, false, Writer, Reader>::passed());
#endif
