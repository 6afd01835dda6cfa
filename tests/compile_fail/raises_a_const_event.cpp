// EXPECT: Raises_takes_the_plain_type_of_an_event_so_write_a_class_without_const_or_reference<const Measured>
// NEEDS: torch
#include "etude/composition.hpp"

struct Measured {};
struct Listener {
  void on(const Measured& e);
};
#ifdef ETUDE_MISTAKE
using Raised = etude::Raises<const Measured>;
#else
using Raised = etude::Raises<Measured>;
#endif

static_assert(etude::Composition<Raised, Listener>::checks::passed());
