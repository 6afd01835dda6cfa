// EXPECT: reads_parameters_is_never_called_so_declare_it_public_as<Average, bool ?\(\) ?const>
#include "etude/dispatch/callback_handler.hpp"

struct StepEnd {
  int step;
};
using Raised = etude::events<StepEnd>;

struct Average {
  void on(const StepEnd& e);
#ifdef ETUDE_MISTAKE
  bool reads_parameters(int step) const;
  bool reads_parameters();
#else
  bool reads_parameters() const;
  bool reads_parameters(int step) const;  // may be overloaded
#endif
};

static_assert(etude::CallbackChecks<Raised, false, Average>::passed());
