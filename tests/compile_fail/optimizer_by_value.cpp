// EXPECT: etude: optimizer and train_sampler are shared_ptr to classes that derive
// NEEDS: torch
#include <torch/optim/sgd.h>

#include "etude/trainer_options.hpp"

struct Trainer {
  explicit Trainer(etude::TrainerOptions options);
};

Trainer make(const std::vector<torch::Tensor>& parameters) {
#ifdef ETUDE_MISTAKE
  return Trainer({.optimizer = torch::optim::SGD(parameters, 0.1)});
#else
  return Trainer({.optimizer = std::make_shared<torch::optim::SGD>(parameters, 0.1)});
#endif
}
