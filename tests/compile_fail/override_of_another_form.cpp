// EXPECT: so_declare_it_public_as<Mine, etude::mistake::method::compute_loss, etude::LossOutput ?\(
// NEEDS: torch
#include "etude/trainer.hpp"

struct Mine : etude::TrainerBase<Mine> {
  using TrainerBase::TrainerBase;
#ifdef ETUDE_MISTAKE
  etude::LossOutput compute_loss(etude::Model&, etude::Batch batch){
#else
  etude::LossOutput compute_loss(const etude::Batch& batch, std::optional<double>) {
#endif
      return TrainerBase::compute_loss(batch);
}
}
;

void train(etude::TrainerOptions options) { Mine(std::move(options)).train(); }
