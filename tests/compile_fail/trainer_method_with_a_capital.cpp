// EXPECT: method_On_is_never_called_so_write_on<Mine>
// NEEDS: torch
#include "etude/trainer.hpp"

struct Mine : etude::TrainerBase<Mine> {
  using TrainerBase::TrainerBase;
#ifdef ETUDE_MISTAKE
  void On(const etude::StepEnd& e);
#else
  void on(const etude::StepEnd& e);
#endif
};

void train(etude::TrainerOptions options) { Mine(std::move(options)).train(); }
