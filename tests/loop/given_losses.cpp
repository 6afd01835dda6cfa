#include <doctest/doctest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "common/fault_of.hpp"
#include "common/folder.hpp"
#include "common/ranks.hpp"
#include "common/toy.hpp"
#include "etude/base/error.hpp"
#include "etude/base/interrupt.hpp"
#include "etude/callbacks/mixup.hpp"
#include "etude/callbacks/run_history.hpp"
#include "etude/callbacks/terminate_on_nan.hpp"
#include "etude/callbacks/throughput.hpp"
#include "etude/callbacks/underflow_overflow.hpp"
#include "etude/parallel/distributed_data_parallel.hpp"
#include "etude/trainer.hpp"

/// Losses that a program computes in its own loop.
namespace loop_given_losses_test {

using etude::TrainerOptions;
using Losses = std::vector<double>;

/// A network with dropout and running means besides weights.
torch::nn::Sequential net() {
  torch::manual_seed(3);
  return torch::nn::Sequential(torch::nn::Linear(4, 8), torch::nn::BatchNorm1d(8), torch::nn::ReLU(),
                               torch::nn::Dropout(0.3), torch::nn::Linear(8, 1));
}

/// A loss on a random batch.
torch::Tensor drawn_loss(torch::nn::Sequential& model) {
  const auto x = torch::rand({6, 4});
  return torch::mse_loss(model->forward(x), x.square().sum(1, true));
}

torch::optim::AdamOptions adam(double learning_rate) { return torch::optim::AdamOptions(learning_rate); }

TrainerOptions options(torch::nn::Sequential model, std::int64_t max_steps = -1) {
  auto args = toy::arguments();
  args.max_grad_norm = 0;
  args.max_steps = max_steps;
  torch::optim::Adam optimizer(model->parameters(), adam(0.02));
  return {.model = std::move(model), .args = args, .optimizer = std::move(optimizer)};
}

/// The losses of a loop in plain LibTorch that makes an update after every `group` losses.
Losses by_hand(int steps, int group = 1, double clip_value = 0) {
  auto model = net();
  torch::optim::Adam optimizer(model->parameters(), adam(0.02));
  Losses losses;
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    for (int i = 0; i < group; ++i) {
      const auto loss = drawn_loss(model) / group;
      loss.backward();
      losses.push_back(loss.item<double>() * group);
    }
    if (clip_value > 0) torch::nn::utils::clip_grad_value_(model->parameters(), clip_value);
    optimizer.step();
  }
  return losses;
}

/// Continues until `last`, like a loop that may have been resumed.
template <class Trainer>
Losses run(Trainer& trainer, torch::nn::Sequential& model, std::int64_t last) {
  Losses losses;
  while (trainer.state().global_step < last) {
    const auto loss = drawn_loss(model);
    losses.push_back(loss.item<double>());
    trainer.backward(loss);
    if (trainer.update().should_stop) break;
  }
  return losses;
}

TEST_CASE("backward() and update() have the losses of the loop by hand, to the bit") {
  auto model = net();
  etude::Trainer<> trainer(options(model, 30));
  torch::manual_seed(3);  // the trainer has set its own seed
  net();
  trainer.begin();
  const auto losses = run(trainer, model, 30);
  CHECK(losses == by_hand(30));
  CHECK(losses.back() < losses.front());
  const auto output = trainer.finish();
  CHECK(output.global_step == 30);
  CHECK(output.stop_reason == "");
  CHECK(output.training_loss == doctest::Approx([&] {
          double sum = 0;
          for (const double loss : losses) sum += loss / 30;
          return sum;
        }()));
}

/// The tensors of the batch that a forward pass gets.
struct SeenBatches {
  std::vector<double> sums;
  void on(const etude::ForwardBegin& e) { sums.push_back(e.batch.inputs[0].sum().item<double>()); }
};

TEST_CASE("backward(batch) and update() make the steps of step(batch), bit for bit") {
  const auto train = [](auto step) {
    auto model = net();
    auto given = options(model, 12);
    given.loss = torch::nn::MSELoss();
    given.args.max_grad_norm = 0.1;
    etude::Trainer<etude::Quiet, SeenBatches> trainer(given);
    trainer.begin();
    std::vector<double> losses, sums;
    for (int i = 0; i < 12; ++i) {
      const auto x = torch::linspace(i, i + 2, 24).view({6, 4}).sin();
      sums.push_back(x.sum().item<double>());
      losses.push_back(
          step(trainer, etude::make_batch(x, x.square().sum(1, true))).loss.template item<double>());
    }
    trainer.finish();
    CHECK(trainer.template callback<SeenBatches>().sums == sums);
    for (const auto& parameter : model->parameters())
      losses.push_back(parameter.sum().template item<double>());
    return losses;
  };
  const auto whole = train([](auto& trainer, const etude::Batch& batch) { return trainer.step(batch); });
  const auto halves = train([](auto& trainer, const etude::Batch& batch) {
    trainer.backward(batch);
    return trainer.update();
  });
  CHECK(halves == whole);
  CHECK(whole[11] < whole[0]);
}

TEST_CASE("an invalid batch is refused by backward(batch), and the training continues") {
  auto model = net();
  auto given = options(model, 2);
  given.loss = torch::nn::MSELoss();
  etude::Trainer<> trainer(given);
  const auto x = torch::rand({6, 4}), y = torch::rand({6, 1});
  CHECK(toy::fault_of<etude::Error>([&] { trainer.backward(etude::make_batch(x, y)); }) ==
        "backward() was called, but no training is under way: must come after begin()");
  trainer.begin();
  CHECK(toy::contains(toy::fault_of<etude::DataError>([&] {
                        trainer.backward(etude::Batch{x, torch::rand({5, 1})});
                      }),
                      "5"));
  trainer.backward(etude::Batch{x, y});
  CHECK(trainer.update().global_step == 1);
  CHECK(toy::contains(toy::fault_of<etude::Error>([&] { trainer.step(x, y); }),
                      "must be one or the other until finish()"));
}

TEST_CASE("gradients are clipped as the arguments say") {
  auto model = net();
  auto given = options(model);
  given.args.max_grad_value = 0.05;
  etude::Trainer<> trainer(given);
  net();
  trainer.begin();
  const auto losses = run(trainer, model, 10);
  CHECK(losses == by_hand(10, 1, 0.05));
  CHECK(losses != by_hand(10));
}

TEST_CASE("every gradient_accumulation_steps calls of update() make one, of the mean of their losses") {
  auto model = net();
  auto given = options(model);
  given.args.gradient_accumulation_steps = 3;
  etude::Trainer<toy::Recorder> trainer(given);
  net();
  trainer.begin();
  Losses losses;
  for (int i = 0; i < 12; ++i) {
    const auto loss = drawn_loss(model);
    losses.push_back(loss.item<double>());
    trainer.backward(loss);
    const auto step = trainer.update();
    CHECK(step.global_step == (i + 1) / 3);
    CHECK(step.loss.defined() == (i % 3 == 2));
    if (i == 2)
      CHECK(step.loss.item<double>() ==
            doctest::Approx((losses[0] + losses[1] + losses[2]) / 3).epsilon(1e-6));
  }
  const auto expected = by_hand(4, 3);
  for (std::size_t i = 0; i < losses.size(); ++i)
    CHECK(losses[i] == doctest::Approx(expected[i]).epsilon(1e-6));
  CHECK(trainer.callback<toy::Recorder>().count("SubstepEnd") == 8);
  CHECK(trainer.callback<toy::Recorder>().count("StepEnd") == 4);

  trainer.backward(drawn_loss(model));
  CHECK(trainer.finish().global_step == 5);  // with the remaining losses
}

TEST_CASE("several losses of one step add up, and their parts are logged") {
  toy::Line model;
  auto args = toy::arguments();
  toy::Folder folder;
  args.output_dir = folder;
  args.optim = etude::OptimizerNames::sgd;
  args.learning_rate = 0.5;
  args.max_grad_norm = 0;
  args.logging_strategy = etude::IntervalStrategy::steps;
  args.logging_steps = 2;
  etude::Trainer<toy::Recorder> trainer({.model = model, .args = args});
  trainer.begin();
  const auto bias = model->bias, weight = model->weight;
  for (int step = 0; step < 2; ++step) {
    trainer.backward((bias - 3).square().sum());
    trainer.backward(etude::LossOutput{.loss = (weight + bias).sum(), .logs = {{"part", bias.sum()}}});
    const auto output = trainer.update();
    // bias 0, then 0 - 0.5 (2 (0 - 3) + 1) = 2.5; weight 0, then -0.5
    CHECK(output.loss.item<double>() == doctest::Approx(step == 0 ? 9 : 0.25 + 2));
  }
  CHECK(bias.item<double>() == doctest::Approx(2.5 - 0.5 * (2 * -0.5 + 1)));
  CHECK(weight.item<double>() == doctest::Approx(-1));
  const auto& logs = trainer.state().log_history;
  REQUIRE(logs.size() == 1);
  CHECK(logs[0].at("loss") == doctest::Approx((9 + 2.25) / 2));
  CHECK(logs[0].at("part") == doctest::Approx(2.5 / 2));
  const auto events = trainer.callback<toy::Recorder>().heard;
  const auto from = std::ranges::find(events, "StepBegin");
  const std::vector<std::string> expected{"StepBegin",        "ForwardBegin",      "BackwardBegin",
                                          "BackwardEnd",      "ForwardBegin",      "BackwardBegin",
                                          "BackwardEnd",      "GradientsComplete", "GradientsClipped",
                                          "PreOptimizerStep", "OptimizerStep",     "SchedulerStep",
                                          "StepEnd"};
  CHECK(std::vector(from, std::ranges::find(events, "StepEnd") + 1) == expected);
  trainer.finish();
}

/// A generator of points and a critic that scores them.
struct Pair {
  torch::nn::Linear generator{nullptr}, critic{nullptr};
  torch::nn::ModuleDict both;

  Pair() {
    torch::manual_seed(5);
    generator = torch::nn::Linear(2, 3);
    critic = torch::nn::Linear(3, 1);
    both->update({{"generator", generator.ptr()}, {"critic", critic.ptr()}});
  }
  torch::Tensor critic_loss() {
    return critic(generator(torch::rand({4, 2})).detach()).square().mean() +
           (critic(torch::rand({4, 3})) - 1).square().mean();
  }
  // Leaves gradients in the critic, too.
  torch::Tensor generator_loss() { return (critic(generator(torch::rand({4, 2}))) - 1).square().mean(); }
  std::vector<torch::Tensor> weights() const {
    std::vector<torch::Tensor> all;
    for (const auto& parameter : both->parameters()) all.push_back(parameter.detach().clone());
    return all;
  }
};

TEST_CASE("optimizers are updated by name, and update() makes the steps of those that are left") {
  constexpr int steps = 6, per_step = 3;
  Pair hand;
  Losses expected;
  {
    torch::optim::Adam generator(hand.generator->parameters(), adam(0.01));
    torch::optim::Adam critic(hand.critic->parameters(), adam(0.02));
    torch::manual_seed(7);
    for (int step = 0; step < steps; ++step) {
      for (int i = 0; i < per_step; ++i) {
        critic.zero_grad();
        const auto loss = hand.critic_loss();
        loss.backward();
        critic.step();
        expected.push_back(loss.item<double>());
      }
      if (step % 2 == 1) continue;
      generator.zero_grad();
      const auto loss = hand.generator_loss();
      loss.backward();
      generator.step();
      expected.push_back(loss.item<double>());
    }
  }
  Pair pair;
  auto args = toy::arguments();
  args.max_grad_norm = 0;
  etude::Trainer<toy::Recorder> trainer(
      {.model = pair.both,
       .args = args,
       .optimizers = {
           {"generator", {.optimizer = torch::optim::Adam(pair.generator->parameters(), adam(0.01))}},
           {"critic", {.optimizer = torch::optim::Adam(pair.critic->parameters(), adam(0.02))}}}});
  trainer.begin();
  torch::manual_seed(7);
  Losses losses;
  for (int step = 0; step < steps; ++step) {
    for (int i = 0; i < per_step; ++i) {
      const auto loss = pair.critic_loss();
      trainer.backward(loss);
      trainer.update("critic");
      losses.push_back(loss.item<double>());
    }
    if (step % 2 == 0) {
      const auto loss = pair.generator_loss();
      trainer.backward(loss);
      losses.push_back(loss.item<double>());
    }
    CHECK(trainer.update().global_step == step + 1);
  }
  CHECK(losses == expected);
  const auto ours = pair.weights(), theirs = hand.weights();
  for (std::size_t i = 0; i < ours.size(); ++i) CHECK(torch::equal(ours[i], theirs[i]));
  // The generator makes no step if it has no gradient.
  CHECK(trainer.callback<toy::Recorder>().count("OptimizerStep") == steps * per_step + steps / 2);
  CHECK(trainer.callback<toy::Recorder>().count("StepEnd") == steps);

  trainer.backward(pair.generator_loss(), "generator");
  CHECK_THROWS_WITH_AS(trainer.update("critic"),
                       "update(\"critic\") was called, but no loss has given its parameters a gradient",
                       etude::DataError);
}

TEST_CASE("a loss that is given for one of several optimizers is logged by its name, with its parts") {
  Pair pair;
  auto args = toy::arguments();
  args.logging_strategy = etude::IntervalStrategy::steps;
  args.logging_steps = 2;
  etude::Trainer<> trainer(
      {.model = pair.both, .args = args, .optimizers = {{"generator", {}}, {"critic", {}}}});
  trainer.begin();
  for (const double scale : {1.0, 3.0}) {
    const auto zero = [](const torch::nn::Linear& module) { return 0 * module->weight.sum(); };
    trainer.backward({.loss = zero(pair.critic) + scale, .logs = {{"penalty", torch::tensor(2 * scale)}}},
                     "critic");
    trainer.update("critic");
    trainer.update(zero(pair.generator) + 10 * scale, "generator");
    trainer.update();
  }
  const auto& logs = trainer.state().log_history.at(0);
  CHECK(logs.at("critic_loss") == 2);
  CHECK(logs.at("penalty") == 4);
  CHECK(logs.at("generator_loss") == 20);
  CHECK(logs.at("loss") == 22);
}

TEST_CASE("an optimizer that is updated by name accumulates its own losses only") {
  Pair pair;
  auto args = toy::arguments();
  args.max_grad_norm = 0;
  args.gradient_accumulation_steps = 2;
  etude::Trainer<toy::Recorder> trainer(
      {.model = pair.both,
       .args = args,
       .optimizers = {{"generator", {.optimizer = torch::optim::SGD(pair.generator->parameters(), 0.1)}},
                      {"critic", {.optimizer = torch::optim::SGD(pair.critic->parameters(), 0.1)}}}});
  trainer.begin();
  Pair hand;
  torch::manual_seed(7);
  {
    torch::optim::SGD generator(hand.generator->parameters(), 0.1), critic(hand.critic->parameters(), 0.1);
    std::vector<torch::Tensor> sums;
    const auto add = [&](const torch::Tensor& loss, const std::vector<torch::Tensor>& parameters) {
      const auto gradients = torch::autograd::grad({loss / 2}, parameters);
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        auto& gradient = torch::Tensor(parameters[i]).mutable_grad();
        gradient = gradient.defined() ? gradient + gradients[i] : gradients[i];
      }
    };
    for (int i = 0; i < 2; ++i) {
      add(hand.critic_loss(), hand.critic->parameters());
      if (i == 1) critic.step();
      add(hand.generator_loss(), hand.generator->parameters());
    }
    generator.step();
  }
  torch::manual_seed(7);
  for (int i = 0; i < 2; ++i) {
    trainer.update(pair.critic_loss(), "critic");
    trainer.backward(pair.generator_loss(), "generator");
    trainer.update();
  }
  CHECK(trainer.callback<toy::Recorder>().count("OptimizerStep") == 2);
  const auto ours = pair.weights(), theirs = hand.weights();
  for (std::size_t i = 0; i < ours.size(); ++i) CHECK(torch::allclose(ours[i], theirs[i], 1e-5, 1e-7));

  trainer.backward(pair.critic_loss());
  CHECK_THROWS_WITH_AS(trainer.update("critic"),
                       "gradient_accumulation_steps is 2: must be 1 for update(\"critic\") after "
                       "backward(loss), which adds one optimizer's gradients to another's; call "
                       "backward(loss, \"critic\")",
                       etude::ArgumentError);
}

/// Throws in the `at`-th step.
struct Breaks {
  std::int64_t at = -1;
  void on(const etude::GradientsComplete& e) const {
    if (e.state.global_step == at) throw std::runtime_error("broken");
  }
};

TEST_CASE("a training that was interrupted is resumed to the bit") {
  const auto whole = by_hand(12);
  for (const std::string how : {"destroyed", "thrown", "finished"}) {
    CAPTURE(how);
    toy::Folder folder;
    const auto given = [&](torch::nn::Sequential& model) {
      auto result = options(model, 12);
      toy::save_to(folder, result.args, how == "destroyed" ? 5 : 100);
      result.args.save_on_exception = true;
      return result;
    };
    Losses losses;
    {
      auto model = net();
      etude::Trainer<Breaks> trainer(given(model), Breaks{.at = how == "thrown" ? 5 : -1});
      net();
      trainer.begin();
      losses = run(trainer, model, 5);
      if (how == "destroyed") run(trainer, model, 7);
      if (how == "thrown") CHECK_THROWS_AS(run(trainer, model, 6), std::runtime_error);
      if (how == "finished") trainer.finish();
    }
    auto model = net();
    etude::Trainer<Breaks> trainer(given(model));
    trainer.begin({.resume_from_checkpoint = true});
    CHECK(trainer.state().global_step == 5);
    const auto rest = run(trainer, model, 12);
    losses.insert(losses.end(), rest.begin(), rest.end());
    CHECK(losses == whole);
    trainer.finish();
  }
}

TEST_CASE("a signal takes effect after the step under way, with a checkpoint that resumes to the bit") {
  toy::Folder folder;
  const auto before = std::signal(SIGTERM, [](int) {});
  const auto given = [&](torch::nn::Sequential& model) {
    auto result = options(model, 12);
    toy::save_to(folder, result.args, 100);
    result.args.enable_jit_checkpoint = true;
    return result;
  };
  Losses losses;
  {
    auto model = net();
    etude::Trainer<> trainer(given(model));
    net();
    trainer.begin();
    losses = run(trainer, model, 4);
    const auto loss = drawn_loss(model);
    losses.push_back(loss.item<double>());
    std::raise(SIGTERM);
    trainer.backward(loss);
    CHECK_THROWS_AS(trainer.update(), etude::Interrupted);
  }
  std::signal(SIGTERM, before);
  auto model = net();
  etude::Trainer<> trainer(given(model));
  trainer.begin({.resume_from_checkpoint = true});
  CHECK(trainer.state().global_step == 5);
  const auto rest = run(trainer, model, 12);
  losses.insert(losses.end(), rest.begin(), rest.end());
  CHECK(losses == by_hand(12));
}

TEST_CASE("a training that is done, or cancelled, says so instead of making a step") {
  toy::Folder folder;
  const auto given = [&](torch::nn::Sequential& model) {
    auto result = options(model, 3);
    toy::save_to(folder, result.args);
    return result;
  };
  {
    auto model = net();
    etude::Trainer<> trainer(given(model));
    trainer.begin();
    run(trainer, model, 3);
    CHECK_THROWS_WITH_AS(
        trainer.backward(drawn_loss(model)),
        "backward() was called after the training has stopped at step 3 (max_steps are done): "
        "call finish(), and begin() for another",
        etude::Error);
    trainer.finish();
  }
  auto model = net();
  etude::Trainer<toy::Recorder> trainer(given(model));
  trainer.begin({.resume_from_checkpoint = true});
  const auto weights = model->parameters()[0].detach().clone();
  trainer.backward(drawn_loss(model));
  const auto step = trainer.update();
  CHECK(step.should_stop);
  CHECK(!step.loss.defined());
  CHECK(torch::equal(model->parameters()[0], weights));
  trainer.finish();
  CHECK(trainer.callback<toy::Recorder>().count("StepBegin") == 0);

  auto other = net();
  etude::Trainer<> cancelled(options(other));
  cancelled.begin();
  run(cancelled, other, 2);
  cancelled.cancel("enough");
  const auto last = cancelled.update(drawn_loss(other));
  CHECK(last.should_stop);
  CHECK(last.stop_reason == "enough");
  CHECK(cancelled.finish().stop_reason == "enough");
}

/// A callback that does nothing. An error must name it and its event.
struct Measures {
  void on(const etude::BatchFetched&) const {}
};
struct Perturbs {
  void on(etude::ForwardBegin& e) const { e.batch.size = 1; }
};

TEST_CASE("options and callbacks that need the batches are refused by name, and the training goes on") {
  const auto refused = []<class... Callbacks>(etude::callbacks<Callbacks...>, auto change) -> std::string {
    auto model = net();
    auto given = options(model);
    change(given);
    etude::Trainer<Callbacks...> trainer(given);
    trainer.begin();
    return toy::fault_of<etude::ArgumentError>([&] { trainer.backward(drawn_loss(model)); });
  };
  const auto nothing = [](TrainerOptions&) {};
  using etude::callbacks;
  CHECK(refused(callbacks<>{}, nothing) == "nothing was thrown");
  CHECK(refused(callbacks<toy::Recorder, etude::RunHistoryCallback, etude::TerminateOnNaNCallback>{},
                nothing) == "nothing was thrown");
  CHECK(refused(callbacks<etude::DebugUnderflowOverflowCallback>{}, nothing)
            .starts_with("DebugUnderflowOverflowCallback can't be used with backward(loss): "));
  CHECK(
      refused(callbacks<Measures>{}, nothing) ==
      "Measures handles BatchFetched: can't be used with backward(loss), since the program keeps its batches "
      "to itself; step(batch) gives them to callbacks");
  CHECK(refused(callbacks<Perturbs>{}, nothing).starts_with("Perturbs changes the batch of ForwardBegin: "));
  CHECK(refused(callbacks<etude::MixUp>{}, nothing).starts_with("MixUp changes the batch of BatchFetched: "));
  CHECK(refused(callbacks<etude::ThroughputMonitor>{}, nothing)
            .starts_with("ThroughputMonitor handles BatchFetched: "));
  CHECK(
      refused(callbacks<>{}, [](auto& given) { given.args.auto_microbatching = true; }) ==
      "auto_microbatching is true: must be false with backward(loss), whose forward pass the program makes");
  CHECK(refused(callbacks<>{}, [](auto& given) {
          given.optimizer = {};
          given.optimizers = {
              {"0",
               {.compute_loss = [](etude::Model& model,
                                   const etude::Batch& batch) { return model.forward(batch)[0].sum(); }}},
              {"4", {.compute_loss = [](etude::Model& model, const etude::Batch& batch) {
                 return model.forward(batch)[0].sum();
               }}}};
        }).starts_with("the optimizer '0' has a compute_loss: must have none with backward(loss)"));
  CHECK(refused(callbacks<>{}, [](auto& given) {
          given.optimizer = torch::optim::LBFGS(given.model.parameters());
        }) == "LBFGS evaluates its loss several times per step: can't be used with backward(loss)");

  auto model = net();
  etude::Trainer<Measures> trainer(options(model));
  trainer.begin();
  CHECK_THROWS_AS(trainer.backward(drawn_loss(model)), etude::ArgumentError);
  CHECK(trainer.finish().global_step == 0);
}

TEST_CASE("calls in another order are errors, and the training goes on") {
  toy::Line model;
  auto args = toy::arguments();
  etude::Trainer<toy::Recorder> trainer({.model = model, .args = args, .loss = torch::nn::MSELoss()});
  const auto loss = [&] { return (model->weight + model->bias - 1).square().sum(); };
  CHECK_THROWS_WITH_AS(trainer.update(),
                       "update() was called, but no training is under way: must come after begin()",
                       etude::Error);
  CHECK_THROWS_AS(trainer.backward(loss(), "critic"), etude::Error);
  trainer.begin();
  CHECK_THROWS_WITH_AS(trainer.update(), "update() was called without a loss: must come after backward(loss)",
                       etude::Error);
  CHECK_THROWS_AS(trainer.backward(loss().detach()), etude::DataError);
  CHECK_THROWS_AS(trainer.backward(torch::ones({2}) * model->weight), etude::DataError);
  CHECK_THROWS_AS(trainer.backward(loss(), "critic"), etude::ArgumentError);
  trainer.backward(loss());
  CHECK(trainer.update().global_step == 1);
  CHECK_THROWS_AS(trainer.update(), etude::Error);
  CHECK_THROWS_WITH_AS(trainer.step(torch::ones({1, 1}), torch::ones({1, 1})),
                       "step() was called in a training by backward(loss): must be one or the other until "
                       "finish()",
                       etude::Error);
  CHECK(trainer.callback<toy::Recorder>().count("TrainError") == 0);
  trainer.finish();
  trainer.step(torch::ones({1, 1}), torch::ones({1, 1}));
  CHECK_THROWS_WITH_AS(trainer.backward(loss()),
                       "backward() was called in a training by step(batch): must be one or the other until "
                       "finish()",
                       etude::Error);
  trainer.finish();
}

TEST_CASE("losses that reach no parameter of an optimizer end the training with an error") {
  toy::Line model;
  torch::nn::Linear stranger(1, 1);
  etude::Trainer<> trainer({.model = model, .args = toy::arguments()});
  trainer.begin();
  trainer.backward(stranger(torch::ones({1, 1})).sum());
  CHECK_THROWS_WITH_AS(trainer.update(),
                       doctest::Contains("no parameter that an optimizer updates has a gradient"),
                       etude::DataError);
}

TEST_CASE("a loss that isn't finite leaves weights and buffers as they were, if on_non_finite says so") {
  auto model = net();
  auto given = options(model);
  given.args.on_non_finite = etude::OnNonFinite::skip;
  etude::Trainer<toy::Recorder> trainer(given);
  trainer.begin();
  for (int step = 0; step < 3; ++step) {
    const auto state = [&] {
      std::vector<torch::Tensor> all;
      for (const auto& each : model->parameters()) all.push_back(each.detach().clone());
      for (const auto& each : model->buffers()) all.push_back(each.detach().clone());
      return all;
    };
    const auto before = state();
    const bool is_bad = step != 1;
    auto x = torch::rand({6, 4});
    if (is_bad) x.fill_(std::numeric_limits<float>::infinity());
    trainer.backward(model->forward(x).sum());
    const auto output = trainer.update();
    CHECK(output.loss.defined() == !is_bad);
    const auto after = state();
    for (std::size_t i = 0; is_bad && i < before.size(); ++i) CHECK(torch::equal(before[i], after[i]));
  }
  CHECK(trainer.callback<toy::Recorder>().count("StepSkipped") == 2);
  CHECK(trainer.finish().global_step == 1);
}

TEST_CASE("TerminateOnNaNCallback stops before the update, and finish() ends the training as usual") {
  auto model = net();
  etude::Trainer<etude::TerminateOnNaNCallback> trainer(options(model));
  trainer.begin();
  run(trainer, model, 2);
  trainer.backward(drawn_loss(model) * std::numeric_limits<double>::quiet_NaN());
  const auto step = trainer.update();
  CHECK(step.should_stop);
  CHECK(step.stop_reason == "the loss of a batch of step 3 is nan");
  CHECK(std::isfinite(model->parameters()[0].sum().item<double>()));
  CHECK(trainer.finish().global_step == 2);
}

TEST_CASE("autocast() has the precision of the arguments, and fp16 scales the losses") {
  for (const bool half : {false, true}) {
    CAPTURE(half);
    toy::Line model;
    auto args = toy::arguments();
    args.optim = etude::OptimizerNames::sgd;
    args.learning_rate = 0.5;
    args.max_grad_norm = 0;
    args.bf16 = !half;
    args.fp16 = half;
    if (half && !etude::computes_in_float16(torch::kCPU)) continue;
    etude::Trainer<> trainer({.model = model, .args = args});
    trainer.begin();
    {
      const auto lower = trainer.autocast();
      const auto product = torch::matmul(torch::ones({2, 1}), model->weight.unsqueeze(1));
      CHECK((product.scalar_type() == (half ? torch::kHalf : torch::kBFloat16)));
    }
    CHECK((torch::matmul(torch::ones({2, 1}), torch::ones({1, 1})).scalar_type() == torch::kFloat));
    trainer.backward((model->bias - 3).square().sum());
    if (half) CHECK(model->bias.grad().item<double>() == -6 * 65536);
    CHECK(trainer.update().loss.item<double>() == 9);
    CHECK(model->bias.item<double>() == 3);
    if (!half) continue;
    trainer.backward((model->bias * 1e36).sum());  // overflows once it is scaled
    CHECK(!trainer.update().loss.defined());
    CHECK(model->bias.item<double>() == 3);
    CHECK(trainer.finish().global_step == 1);
  }
}

TEST_CASE("evaluations, the program's own calls included, go on between its steps") {
  toy::Line model;
  auto args = toy::arguments();
  toy::Folder folder;
  args.output_dir = folder;
  args.eval_strategy = etude::IntervalStrategy::steps;
  args.eval_steps = 2;
  etude::Trainer<toy::Recorder> trainer(
      {.model = model, .args = args, .loss = torch::nn::MSELoss(), .eval_dataset = toy::dataset(2)});
  trainer.begin();
  for (int step = 0; step < 4; ++step) {
    trainer.backward((model->weight + model->bias - 1).square().sum());
    trainer.update();
    if (step == 0) CHECK(trainer.evaluate().contains("eval_loss"));
    CHECK(model->is_training());
  }
  CHECK(trainer.callback<toy::Recorder>().count("Evaluate") == 3);
  trainer.finish();
}

template <class Processes>
void train_in_two_processes() {
  const auto made = [](toy::Line& model) -> TrainerOptions {
    auto args = toy::arguments();
    args.optim = etude::OptimizerNames::adam;
    args.learning_rate = 0.1;
    args.max_grad_norm = 0;
    args.gradient_accumulation_steps = 2;
    return {.model = model, .args = args};
  };
  const auto loss_of = [](toy::Line& model, double rank, int i) {
    return (model->weight * i + model->bias - rank).square().sum();
  };
  toy::Line model, alone_model;
  etude::Trainer<Processes> ours(made(model));
  const auto rank = static_cast<double>(ours.args().process_index());
  ours.begin();
  for (int i = 0; i < 8; ++i) {
    ours.backward(loss_of(model, rank, i % 3));
    ours.update();
  }
  CHECK(ours.finish().global_step == 4);
  const toy::Alone alone;
  etude::Trainer<> whole(made(alone_model));
  whole.begin();
  for (int i = 0; i < 8; ++i) {
    whole.backward((loss_of(alone_model, 0, i % 3) + loss_of(alone_model, 1, i % 3)) / 2);
    whole.update();
  }
  CHECK(model->weight.item<double>() == doctest::Approx(alone_model->weight.item<double>()).epsilon(1e-5));
  CHECK(model->bias.item<double>() == doctest::Approx(alone_model->bias.item<double>()).epsilon(1e-5));
}

TEST_CASE("two processes that give their own losses train as one with both") {
  if (toy::launches(2)) return;
  train_in_two_processes<etude::DistributedDataParallel>();
}

TEST_CASE("two processes that give their own losses may divide the optimizer's state") {
  if (toy::launches(2)) return;
  train_in_two_processes<etude::ShardedDataParallel<1>>();
}

}  // namespace loop_given_losses_test
