// EXPECT: reads_parameters_is_never_called_so_declare_it_public_as<Average, bool ?\(\) ?const>
#include "etude/dispatch/callback_handler.hpp"

struct StepEnd {
  int step;
};
using Raised = etude::events<StepEnd>;

class Average {
#ifndef ETUDE_MISTAKE
 public:
#endif
  bool reads_parameters() const { return true; }

 public:
  void on(const StepEnd& e);
};

static_assert(etude::CallbackChecks<Raised, false, Average>::passed());
