// EXPECT: handler_of_the_base_is_hidden_so_write_using_Base_on<Derived, Base, EpochEnd>
#include "etude/dispatch/callback_handler.hpp"

struct StepEnd {};
struct EpochEnd {};
using Raised = etude::events<StepEnd, EpochEnd>;

struct Base {
#ifndef __clang__  // which sees the bases of aggregates only
  virtual ~Base() = default;
#endif
  void on(const StepEnd&) {}
  void on(const EpochEnd&) {}
};

struct Derived : Base {
#ifndef ETUDE_MISTAKE
  using Base::on;
#endif
  void on(const StepEnd&) {}
};

struct HidesOnPurpose : Base {
  using handles = etude::events<StepEnd>;
  void on(const StepEnd&) {}
};

static_assert(etude::CallbackChecks<Raised, false, Derived, HidesOnPurpose>::passed());
