// EXPECT: the_options_come_first_so_write_Trainer_options_callbacks<Listener, etude::Trainer<
// NEEDS: torch
#include "etude/trainer.hpp"

struct Listener {
  void on(const etude::StepEnd&) {}
};

void train(const etude::TrainerOptions& options) {
#ifdef ETUDE_MISTAKE
  etude::Trainer trainer(Listener{}, options);
#else
  etude::Trainer trainer(options, Listener{});
#endif
  trainer.train();
}
