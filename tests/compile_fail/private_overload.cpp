// EXPECT: void Listener::on\(const EpochEnd&\).* is private
// EXPECT-CLANG: 'on' is a private member of 'Listener'
#include "etude/dispatch/callback_handler.hpp"

struct StepEnd {
  int step;
};
struct EpochEnd {};
using Raised = etude::events<StepEnd, EpochEnd>;

class Listener {
 public:
  void on(const StepEnd& e);
#ifdef ETUDE_MISTAKE
 private:
#endif
  void on(const EpochEnd& e);
};

static_assert(etude::CallbackChecks<Raised, false, Listener>::passed());
