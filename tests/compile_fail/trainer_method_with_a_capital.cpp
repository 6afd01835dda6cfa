// EXPECT: member_means_nothing_so_rename_it<Mine, etude::detail::method::On, etude::detail::method::on>
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
