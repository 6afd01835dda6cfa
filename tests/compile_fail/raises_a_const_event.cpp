// EXPECT: Raises_takes_the_plain_type_of_an_event_so_write_a_class_without_const_or_reference<const Measured>
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
