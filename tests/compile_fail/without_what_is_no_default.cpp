// EXPECT: Without_takes_a_default_callback_of_the_trainer_so_remove<etude::EarlyStoppingCallback>
// NEEDS: torch
#include "etude/callbacks/early_stopping.hpp"
#include "etude/trainer.hpp"

#ifdef ETUDE_MISTAKE
using Left = etude::EarlyStoppingCallback;
#else
using Left = etude::PrinterCallback;
#endif
etude::Trainer<etude::Without<Left>> make() {
  return etude::Trainer<etude::Without<Left>>(etude::TrainerOptions{});
}
