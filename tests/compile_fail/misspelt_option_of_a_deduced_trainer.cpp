// EXPECT: braces_are_no_TrainerOptions_so_write_etude_TrainerOptions_before_them_to_see_why
// EXPECT-CLANG: call to deleted constructor of 'etude::Trainer<>'
// NEEDS: torch
#include "etude/trainer.hpp"

struct Listener {
  void on(const etude::StepEnd&) {}
};

void train(const etude::Model& model, const std::shared_ptr<torch::optim::Optimizer>& optimizer) {
#ifdef ETUDE_MISTAKE
  etude::Trainer trainer({.model = model, .optimiser = optimizer}, Listener{});
#else
  etude::Trainer trainer({.model = model, .optimizer = optimizer}, Listener{});
#endif
}
