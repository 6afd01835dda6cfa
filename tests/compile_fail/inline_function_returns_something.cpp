// EXPECT: function_of_call_must_return_void<Stop, bool>
#include "etude/dispatch/filters.hpp"

struct StepEnd {
  double loss;
  bool* stop;
};

struct Stop {
#ifdef ETUDE_MISTAKE
  bool operator()(const StepEnd& e) const { return e.loss > 3; }
#else
  void operator()(const StepEnd& e) const { *e.stop = e.loss > 3; }
#endif
};

inline auto callback = etude::on<StepEnd>().call(Stop{});
