// EXPECT: handler_takes_another_type_of_this_name_so_declare_it_as<Listener, void ?\(const StepEnd ?&\)>
#include "etude/dispatch/callback_handler.hpp"

struct StepEnd {
  int step;
};
struct EpochEnd {};
using Raised = etude::events<StepEnd, EpochEnd>;

namespace mine {
#ifdef ETUDE_MISTAKE
struct StepEnd {};
#else
template <class T>
struct StepEnd {};
#endif
}  // namespace mine

struct Listener {
#ifdef ETUDE_MISTAKE
  void on(const mine::StepEnd& e);
#else
  void on(const mine::StepEnd<int>& e);
#endif
};

static_assert(etude::CallbackChecks<Raised, false, Listener>::passed());
