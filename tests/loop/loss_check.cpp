#include "etude/loop/loss_check.hpp"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <memory>
#include <string>

#include "common/fault_of.hpp"
#include "common/printed.hpp"
#include "etude/base/error.hpp"
#include "etude/data/batch.hpp"
#include "etude/model/model.hpp"
#include "etude/optim/named_optimizer.hpp"
#include "etude/trainer_options.hpp"

namespace loop_loss_check_test {

struct Checked {
  torch::nn::Linear layer{2, 1};
  etude::TrainerOptions options;
  etude::TrainingArguments args;
  etude::Model model = layer;
  etude::OptimizerList optimizers;
  etude::LossCheck check{options, args, model, optimizers};

  torch::Tensor loss() { return layer->forward(torch::ones({4, 2})).mean(); }
  std::string printed(const torch::Tensor& loss) {
    return toy::printed([&] { check.before_backward(loss, {}); }, STDERR_FILENO);
  }
};

template <class Act>
std::string fault_of(Act act) {
  return toy::fault_of<etude::DataError>(act);
}

torch::Tensor leaf(std::int64_t size) { return torch::ones({size}, torch::requires_grad()); }

TEST_CASE("tensors that two losses depend on and nothing trains are warned of once") {
  Checked checked;
  const auto forgotten = leaf(3);
  const auto loss = [&] { return checked.loss() + forgotten.sum() + leaf(5).sum(); };
  CHECK(checked.printed(loss()).empty());
  const auto warning = checked.printed(loss());
  CHECK(warning.find("the loss depends on tensors that require gradients but aren't trained: " +
                     etude::describe(forgotten) + "; a layer") != std::string::npos);
  CHECK(checked.printed(loss()).empty());
}

TEST_CASE("a tensor that one loss depends on, or none, is no reason for a warning") {
  Checked passing;
  for (int batch = 0; batch < 3; ++batch) CHECK(passing.printed(passing.loss() + leaf(5).sum()).empty());
  Checked clean;
  const auto late = leaf(3);
  CHECK(clean.printed(clean.loss()).empty());
  for (int batch = 0; batch < 2; ++batch) CHECK(clean.printed(clean.loss() + late.sum()).empty());
}

TEST_CASE("a loss that backward can't be called on is an error in any step") {
  Checked checked;
  for (int step = 0; step < 3; ++step) {
    checked.check.before_backward(checked.loss(), {});
    CHECK(toy::contains(fault_of([&] { checked.check.before_backward(torch::ones({}), {}); }),
                        "the loss depends on no parameter that is trained"));
    CHECK(toy::contains(fault_of([&] { checked.check.before_backward(leaf(2), {}); }),
                        "must be one element; reduce it"));
  }
}

TEST_CASE("a step must return a loss, and the first with a graph must have left gradients") {
  Checked checked;
  CHECK(fault_of([&] { checked.check.after_step({}); }) == "training_step returned no loss");
  CHECK(checked.check.after_step(torch::tensor(2.0)).item<double>() == 2);
  const auto forgets = [&] { return fault_of([&] { checked.check.after_step(checked.loss()); }); };
  CHECK(toy::contains(forgets(), "without calling backward on it"));
  const auto loss = checked.loss();
  loss.backward();
  const auto value = checked.check.after_step(loss);
  CHECK_FALSE(value.requires_grad());
  CHECK(value.item<float>() == loss.item<float>());
  checked.layer->zero_grad();
  CHECK(forgets() == "nothing was thrown");
}

}  // namespace loop_loss_check_test
