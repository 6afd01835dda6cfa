// EXPECT: handler_changes_only_a_copy_of_its_event_so_declare_it_as_one_of<Listener, void ?\(const EpochLog
#include "etude/dispatch/callback_handler.hpp"

struct StepEnd {};
struct EpochEnd {};
using Raised = etude::events<StepEnd, EpochEnd>;

#include <functional>

struct EpochLog {
  int epoch = 0;
};

struct Listener {
#ifdef ETUDE_MISTAKE
  std::function<void(EpochLog)> on;
#else
  std::function<void(const EpochLog&)> on;
#endif
};

static_assert(etude::CallbackChecks<etude::events<StepEnd, EpochLog>, false, Listener>::passed());
