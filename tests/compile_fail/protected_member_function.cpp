// EXPECT: handler_is_private_or_protected_so_make_it_public<Listener>
#include "etude/dispatch/callback_handler.hpp"

struct StepEnd {};
struct EpochEnd {};
using Raised = etude::events<StepEnd, EpochEnd>;

#include <functional>

class Listener {
#ifdef ETUDE_MISTAKE
 protected:
#else
 public:
#endif
  std::function<void(const StepEnd&)> on;
};

static_assert(etude::CallbackChecks<Raised, false, Listener>::passed());
