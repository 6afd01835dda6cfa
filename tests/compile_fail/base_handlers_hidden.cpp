// EXPECT: handler_of_the_base_is_hidden_so_write_using_Base_on<Derived, Base, EpochEnd>
#include "etude/dispatch/callback_handler.hpp"
#include "etude/reflect/struct.hpp"

struct StepEnd {};
struct EpochEnd {};
using Raised = etude::events<StepEnd, EpochEnd>;

struct Base {
  ETUDE_STRUCT(Base, (int, every, "an option", 1));
  void on(const StepEnd&) {}
  void on(const EpochEnd&) {}
};

class Derived : public Base {
 public:
  explicit Derived(int) {}
#ifndef ETUDE_MISTAKE
  using Base::on;
#endif
  void on(const StepEnd&) {}
};

static_assert(etude::CallbackChecks<Raised, false, Derived>::passed());
