// EXPECT: callback_is_listed_twice_so_remove_one_or_set_allows_duplicates<Listener>
#include "etude/dispatch/callback_handler.hpp"

struct StepEnd {
  int step;
};
struct EpochEnd {};
using Raised = etude::events<StepEnd, EpochEnd>;

struct Listener {
#ifndef ETUDE_MISTAKE
  static constexpr bool allows_duplicates = true;
#endif
  void on(const StepEnd& e);
};

static_assert(etude::CallbackChecks<Raised, false, Listener, Listener>::passed());
