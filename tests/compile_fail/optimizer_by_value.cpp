// EXPECT: etude: optimizer and train_sampler are an object or a unique_ptr, given with std::move, or
// NEEDS: torch
#include <torch/optim/sgd.h>

#include <utility>

#include "etude/trainer_options.hpp"

struct Trainer {
  explicit Trainer(etude::TrainerOptions options);
};

Trainer make(const std::vector<torch::Tensor>& parameters) {
  torch::optim::SGD optimizer(parameters, 0.1);
#ifdef ETUDE_MISTAKE
  return Trainer({.optimizer = optimizer});
#else
  return Trainer({.optimizer = std::move(optimizer)});
#endif
}
