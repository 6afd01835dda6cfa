// EXPECT: handler_of_the_base_is_hidden_so_write_using_Base_on<Derived, Second, Verified>
#include "etude/dispatch/callback_handler.hpp"

struct StepEnd {};
struct Verified {};
using Raised = etude::events<StepEnd>;

struct First {
  void on(const StepEnd&) {}
};
struct Second {
  void on(const Verified&) {}
};

struct Derived : First, Second {
  using First::on;
#ifndef ETUDE_MISTAKE
  using Second::on;
#endif
};

static_assert(etude::CallbackChecks<Raised, false, Derived>::passed());
