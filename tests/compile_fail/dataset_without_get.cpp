// EXPECT: dataset_without_get.cpp:.*: a dataset is made from tensors, a dataset of torch::data, a vector
// NEEDS: torch
#include "etude/trainer_options.hpp"

struct Squares {
  std::size_t size() const { return 10; }
#ifdef ETUDE_MISTAKE
  torch::Tensor at(std::size_t i) const { return torch::full({1}, static_cast<double>(i * i)); }
#else
  torch::Tensor get(std::size_t i) const { return torch::full({1}, static_cast<double>(i * i)); }
#endif
};

struct Trainer {
  explicit Trainer(etude::TrainerOptions options);
};

Trainer make() { return Trainer({.train_dataset = Squares(), .eval_dataset = Squares()}); }
