// EXPECT: InitEnd_has_gone_by_at_run_time_so_list_the_callback_in_the_type_of_the_trainer<Listener>
// NEEDS: torch
#include "etude/etude.hpp"

struct Listener {
  void on(const etude::InitEnd&) {}
#ifndef ETUDE_MISTAKE
  void on(const etude::TrainBegin&) {}
#endif
};

void add(etude::Trainer<etude::RuntimeCallbacks>& trainer) { trainer.add_callback(Listener{}); }
