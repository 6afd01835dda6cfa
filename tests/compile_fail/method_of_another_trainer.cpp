// EXPECT: so_override<Mine, etude::mistake::method::calculate_train_batch_loss, etude::mistake::
// NEEDS: torch
#include "etude/trainer.hpp"

struct Mine : etude::TrainerBase<Mine> {
  using TrainerBase::TrainerBase;
#ifndef ETUDE_MISTAKE
  etude::LossOutput compute_loss(const etude::Batch& batch, std::optional<double>) {
    return calculate_train_batch_loss(batch);
  }
#endif
  etude::LossOutput calculate_train_batch_loss(const etude::Batch& batch) {
    return TrainerBase::compute_loss(batch);
  }
};

void train(etude::TrainerOptions options) { Mine(std::move(options)).train(); }
