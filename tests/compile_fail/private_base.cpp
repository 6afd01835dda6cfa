// EXPECT: callback_has_several_bases_or_a_private_one_so_derive_publicly_and_write_using_bases<Derived>
#include "etude/dispatch/callback_handler.hpp"

struct StepEnd {};
struct EpochEnd {};
using Raised = etude::events<StepEnd, EpochEnd>;

struct Base {
  using this_callback = Base;
  void on(const StepEnd&) {}
};

#ifdef ETUDE_MISTAKE
class Derived : Base {
#else
class Derived : public Base {
#endif
 public:
  using Base::on;
  void on(const EpochEnd&) {}
};

static_assert(etude::CallbackChecks<Raised, false, Derived>::passed());
