#include <etude/etude.hpp>

int main() {
  torch::manual_seed(0);
  const auto x = torch::rand({64, 2});
  etude::Trainer<> trainer({.model = torch::nn::Linear(2, 1),
                            .args = {.num_train_epochs = 1, .save_strategy = etude::SaveStrategy::no},
                            .loss = torch::nn::MSELoss(),
                            .train_dataset = {x, x.sum(1, true)}});
  return trainer.train().global_step == 8 ? 0 : 1;
}
