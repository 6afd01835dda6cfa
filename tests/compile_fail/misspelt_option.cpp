// EXPECT: braces_are_no_TrainerOptions_so_write_etude_TrainerOptions_before_them_to_see_why
// EXPECT-CLANG: call to deleted constructor of 'etude::Trainer<Listener>'
// NEEDS: torch
#include "etude/trainer.hpp"

struct Listener {
  void on(const etude::StepEnd&) {}
};

void train(const etude::Model& model, const etude::Loss& loss) {
#ifdef ETUDE_MISTAKE
  etude::Trainer<Listener> trainer({.model = model, .criterion = loss}, Listener{});
#else
  etude::Trainer<Listener> trainer({.model = model, .loss = loss}, Listener{});
  etude::Trainer deduced({.model = model, .loss = loss}, Listener{});
#endif
}
