// EXPECT: event_is_not_named_in_the_Raises_of_this_trainer<Checked, etude::Trainer<
// NEEDS: torch
#include "etude/etude.hpp"

struct Verified {};
struct Checked {};

struct Listener {
  void on(const Verified&) {}
};

#ifdef ETUDE_MISTAKE
using Trainer = etude::Trainer<etude::Raises<Verified>, Listener>;
#else
using Trainer = etude::Trainer<etude::Raises<Verified, Checked>, Listener>;
#endif

void raise(Trainer& trainer) { trainer.call_event(Checked{}); }
