#include <doctest/doctest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/loss.h>
#include <torch/nn/utils/convert_parameters.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/folder.hpp"
#include "common/toy.hpp"

/// Trainings that end with weights bit-identical to those of a hand-written loop with torch::optim.
namespace loop_exact_optimizers_test {

constexpr std::int64_t steps = 60, batch_size = 6;

torch::nn::Sequential network() {
  torch::manual_seed(3);
  return torch::nn::Sequential(torch::nn::Linear(3, 7), torch::nn::Tanh(), torch::nn::Linear(7, 33),
                               torch::nn::Tanh(), torch::nn::Linear(33, 1));
}

std::pair<torch::Tensor, torch::Tensor> data() {
  torch::manual_seed(4);
  const auto x = torch::randn({steps * batch_size, 3});
  return {x, x.sin().sum(1, true)};
}

using Make = std::function<std::shared_ptr<torch::optim::Optimizer>(std::vector<torch::Tensor>)>;

torch::Tensor by_hand(const Make& make) {
  auto net = network();
  const auto [x, y] = data();
  const auto optimizer = make(net->parameters());
  for (std::int64_t step = 0; step < steps; ++step) {
    optimizer->step([&, x_ = x.narrow(0, step * batch_size, batch_size),
                     y_ = y.narrow(0, step * batch_size, batch_size)] {
      optimizer->zero_grad();
      const auto loss = torch::mse_loss(net->forward(x_), y_);
      loss.backward();
      return loss;
    });
  }
  return torch::nn::utils::parameters_to_vector(net->parameters()).detach();
}

etude::TrainerOptions options(etude::OptimizerNames optim, const std::string& optim_args, double rate) {
  auto args = etude::plain_loop();
  args.output_dir = "/nonexistent";
  args.per_device_train_batch_size = batch_size;
  args.num_train_epochs = 1;
  args.optim = optim;
  args.optim_args = optim_args;
  args.learning_rate = rate;
  args.logging_strategy = etude::IntervalStrategy::no;
  args.log_level = etude::LogLevel::critical;
  args.report = etude::ReportMode::quiet;
  const auto [x, y] = data();
  return {
      .model = network(), .args = args, .loss = torch::nn::MSELoss(), .train_dataset = etude::Dataset(x, y)};
}

torch::Tensor weights_of(const etude::TrainerOptions& with, const etude::TrainOptions& from = {}) {
  etude::Trainer trainer(with);
  trainer.train(from);
  return torch::nn::utils::parameters_to_vector(trainer.model().parameters()).detach();
}

/// Also checks a training that stops in the middle and is resumed.
void check(etude::OptimizerNames optim, const std::string& optim_args, double rate, const Make& make) {
  CAPTURE(optim);
  CAPTURE(optim_args);
  const auto expected = by_hand(make);
  CHECK(torch::equal(weights_of(options(optim, optim_args, rate)), expected));
  const toy::Folder folder;
  auto first = options(optim, optim_args, rate);
  toy::save_to(folder, first.args, 25);
  weights_of(first);
  auto second = options(optim, optim_args, rate);
  second.args.output_dir = folder;
  const std::string checkpoint = folder / "checkpoint-25";
  CHECK(torch::equal(weights_of(second, {.resume_from_checkpoint = checkpoint}), expected));
}

TEST_CASE("a training with an exact optimizer ends with the weights of a loop by hand, resumed or not") {
  using enum etude::OptimizerNames;
  namespace torchs = torch::optim;
  using Parameters = std::vector<torch::Tensor>;
  check(adamw_torch, "", 0.01, [](const Parameters& all) {
    return std::make_shared<torchs::AdamW>(all, torchs::AdamWOptions(0.01).weight_decay(0));
  });
  check(adam, "fused=false", 0.01,
        [](const Parameters& all) { return std::make_shared<torchs::Adam>(all, torchs::AdamOptions(0.01)); });
  check(sgd, "fused=false,momentum=0.9", 0.05, [](const Parameters& all) {
    return std::make_shared<torchs::SGD>(all, torchs::SGDOptions(0.05).momentum(0.9));
  });
  check(adagrad, "fused=false", 0.05, [](const Parameters& all) {
    return std::make_shared<torchs::Adagrad>(all, torchs::AdagradOptions(0.05));
  });
  check(rmsprop, "fused=false", 0.01, [](const Parameters& all) {
    return std::make_shared<torchs::RMSprop>(all, torchs::RMSpropOptions(0.01));
  });
  check(lbfgs, "max_iter=5", 0.1, [](const Parameters& all) {
    return std::make_shared<torchs::LBFGS>(all, torchs::LBFGSOptions(0.1).max_iter(5).max_eval(6));
  });
}

}  // namespace loop_exact_optimizers_test
