// EXPECT: generic_handler_takes_copies_so_declare_it_as_on_const_auto<Listener>
#include "etude/dispatch/callback_handler.hpp"

struct StepEnd {};
struct EpochEnd {};
using Raised = etude::events<StepEnd, EpochEnd>;

struct Listener {
#ifdef ETUDE_MISTAKE
  void on(auto e);
#else
  void on(const auto& e);
#endif
};

static_assert(etude::CallbackChecks<Raised, false, Listener>::passed());
