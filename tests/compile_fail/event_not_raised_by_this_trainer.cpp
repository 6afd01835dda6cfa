// EXPECT: callback_handles_an_event_that_this_trainer_never_raises<Listener, Checked>
// NEEDS: torch
#include "etude/etude.hpp"

struct Verified {};
struct Checked {};

struct Listener {
  void on(const Checked&) {}
};

#ifdef ETUDE_MISTAKE
using Trainer = etude::Trainer<etude::Raises<Verified>, Listener>;
#else
using Trainer = etude::Trainer<etude::Raises<Verified, Checked>, Listener>;
#endif

void raise(Trainer& trainer) { trainer.call_event(Verified{}); }
