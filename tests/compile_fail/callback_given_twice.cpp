// EXPECT: callback_is_given_more_often_than_it_is_listed<Listener, etude::Trainer<Listener>
// NEEDS: torch
#include "etude/trainer.hpp"

struct Listener {
  void on(const etude::StepEnd&) {}
};

void train(etude::TrainerOptions options) {
#ifdef ETUDE_MISTAKE
  etude::Trainer<Listener> trainer(std::move(options), Listener{}, Listener{});
#else
  etude::Trainer<Listener> trainer(std::move(options), Listener{});
#endif
  trainer.train();
}
