// EXPECT: callback_has_several_bases_or_a_private_one_so_derive_publicly_and_write_using_bases<Derived>
#include "etude/dispatch/callback_handler.hpp"

struct StepEnd {};
struct EpochEnd {};
using Raised = etude::events<StepEnd, EpochEnd>;

struct First {
  using this_callback = First;
  void on(const StepEnd&) {}
};
struct Second {
  using this_callback = Second;
  void on(const EpochEnd&) {}
};

struct Derived : First, Second {
#ifndef ETUDE_MISTAKE
  using bases = etude::callbacks<First>;  // Second is left out on purpose
#endif
  void on(const StepEnd&) {}
};

static_assert(etude::CallbackChecks<Raised, false, Derived>::passed());
