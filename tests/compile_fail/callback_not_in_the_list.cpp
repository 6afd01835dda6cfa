// EXPECT: callback_is_not_in_the_list_of_this_trainer<Listener, etude::Trainer<
// NEEDS: torch
#include "etude/etude.hpp"

struct Listener {
  void on(const etude::StepEnd&) {}
};

#ifdef ETUDE_MISTAKE
using Trainer = etude::Trainer<>;
#else
using Trainer = etude::Trainer<Listener>;
#endif

Trainer make(etude::TrainerOptions options) { return Trainer(std::move(options), Listener{}); }
