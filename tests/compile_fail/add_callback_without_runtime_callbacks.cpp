// EXPECT: add_callback_needs_RuntimeCallbacks_in_the_list_of_this_trainer<etude::Trainer<
// NEEDS: torch
#include "etude/etude.hpp"

struct Listener {
  void on(const etude::StepEnd&) {}
};

#ifdef ETUDE_MISTAKE
using Trainer = etude::Trainer<>;
#else
using Trainer = etude::Trainer<etude::RuntimeCallbacks>;
#endif

void add(Trainer& trainer) { trainer.add_callback(Listener{}); }
