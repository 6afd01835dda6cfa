// EXPECT: handler_parameter_is_not_an_event<Listener, std::
#include "etude/dispatch/callback_handler.hpp"

struct StepEnd {};
struct EpochEnd {};
using Raised = etude::events<StepEnd, EpochEnd>;

#include <functional>
#include <string>

struct Mine {};

struct Listener {
#ifdef ETUDE_MISTAKE
  std::function<void(const std::string&)> on;
#else
  std::function<void(const Mine&)> on;
#endif
};

static_assert(etude::CallbackChecks<Raised, false, Listener>::passed());
