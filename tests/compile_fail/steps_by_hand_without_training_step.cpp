// EXPECT: automatic_optimization_is_false_so_override_training_step_which_makes_the_steps<Mine>
// NEEDS: torch
#include "etude/trainer.hpp"

struct Mine : etude::TrainerBase<Mine> {
  using TrainerBase::TrainerBase;
  static constexpr bool automatic_optimization = false;
#ifndef ETUDE_MISTAKE
  torch::Tensor training_step(etude::Batch& batch) {
    auto loss = compute_loss(batch).loss;
    optimizer("net").backward(loss);
    optimizer("net").step();
    return loss.detach();
  }
#endif
};

void train(etude::TrainerOptions options) { Mine(std::move(options)).train(); }
