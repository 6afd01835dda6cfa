// EXPECT: handler_of_the_base_is_hidden_so_write_using_Base_on<Derived, Second, EpochEnd>
#include "etude/dispatch/callback_handler.hpp"

struct StepEnd {};
struct EpochEnd {};
using Raised = etude::events<StepEnd, EpochEnd>;

struct First {
  void on(const StepEnd&) {}
};
struct Second {
  void on(const EpochEnd&) {}
};

struct Derived : First, Second {
  using First::on;
#ifndef ETUDE_MISTAKE
  using Second::on;
#endif
};

static_assert(etude::CallbackChecks<Raised, false, Derived>::passed());
