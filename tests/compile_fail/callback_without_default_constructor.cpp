// EXPECT: callback_has_no_default_constructor_so_pass_it_to_the_trainer<Listener>
// NEEDS: torch
#include "etude/trainer.hpp"

struct Listener {
  explicit Listener(int every_) : every(every_) {}
  void on(const etude::StepEnd&) {}
  int every;
};

void train(etude::TrainerOptions options) {
#ifdef ETUDE_MISTAKE
  etude::Trainer<Listener> trainer(std::move(options));
#else
  etude::Trainer<Listener> trainer(std::move(options), Listener(10));
#endif
  trainer.train();
}
