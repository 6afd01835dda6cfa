// EXPECT: a_plain_class_is_expected_so_leave_out_const_and_reference<const Measured>
#include "etude/dispatch/composition.hpp"

struct Defaults {
  using events = etude::events<>;
  using first = etude::callbacks<>;
  using last = etude::callbacks<>;
};
struct Measured {};
struct Listener {
  void on(const Measured& e);
};
#ifdef ETUDE_MISTAKE
using Raised = etude::Raises<const Measured>;
#else
using Raised = etude::Raises<Measured>;
#endif

static_assert(etude::Composition<Defaults, Raised, Listener>::checks::passed());
