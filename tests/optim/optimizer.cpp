#include <doctest/doctest.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adamw.h>

#include "etude/optim/optimizer.hpp"
#include "etude/optim/optimizers.hpp"

#include "compare.hpp"
#include "etude/base/error.hpp"
#include "saved_state.hpp"

namespace optim_optimizer_test {

using saved_state::clones;

torch::Tensor& entry(etude::NamedTensors& tensors, const std::string& name) {
  for (auto& [key, tensor] : tensors) {
    if (key == name) return tensor;
  }
  throw std::out_of_range(name);
}

void train(etude::Optimizer& optimizer, const beside_torch::Twins& twins, std::int64_t from,
           std::int64_t to) {
  for (std::int64_t step = from; step < to; ++step) {
    torch::manual_seed(std::uint64_t(step));
    optimizer.zero_grad();
    twins.set_gradients(step);
    optimizer.step();
  }
}

std::vector<beside_torch::Ours> all_kinds() {
  return {beside_torch::ours<etude::AdamW>(etude::AdamWOptions{.amsgrad = true}),
          beside_torch::ours<etude::Adam>(etude::AdamOptions{.fused = false}),
          beside_torch::ours<etude::SGD>(etude::SGDOptions{.momentum = 0.9, .dampening = 0.5}),
          beside_torch::ours<etude::SGD>(etude::SGDOptions{}),
          beside_torch::ours<etude::Adagrad>(etude::AdagradOptions{.initial_accumulator_value = 0.3}),
          beside_torch::ours<etude::RMSprop>(etude::RMSpropOptions{.momentum = 0.9, .centered = true}),
          beside_torch::ours<etude::Lion>(etude::LionOptions{}),
          beside_torch::ours<etude::NAdam>(etude::NAdamOptions{}),
          beside_torch::ours<etude::RAdam>(etude::RAdamOptions{}),
          beside_torch::ours<etude::Adamax>(etude::AdamaxOptions{}),
          beside_torch::ours<etude::Adadelta>(etude::AdadeltaOptions{}),
          beside_torch::ours<etude::ASGD>(etude::ASGDOptions{.t0 = 5}),
          beside_torch::ours<etude::AdEMAMix>(etude::AdEMAMixOptions{.t_alpha = 30, .t_beta3 = 30}),
          beside_torch::ours<etude::Adafactor>(etude::AdafactorOptions{.beta1 = 0.9}),
          beside_torch::ours<etude::AdamW8bit>(etude::AdamW8bitOptions{.min_8bit_size = 20}),
          beside_torch::ours<etude::Lion8bit>(etude::Lion8bitOptions{.min_8bit_size = 20})};
}

TEST_CASE("a run that is stored and loaded midway equals one that isn't, for each optimizer") {
  for (const beside_torch::Ours& make : all_kinds()) {
    const beside_torch::Twins whole(at::kDouble), halves(at::kDouble);
    const auto uninterrupted = make(beside_torch::groups_of(whole.ours, true));
    train(*uninterrupted, whole, 0, 20);
    etude::NamedTensors state;
    {
      const auto first = make(beside_torch::groups_of(halves.ours, true));
      train(*first, halves, 0, 10);
      state = clones(first->state());
    }
    // The groups and their order differ here, since state is found by name.
    auto groups = beside_torch::groups_of(halves.ours, true);
    std::reverse(groups[0].parameters.begin(), groups[0].parameters.end());
    const auto second = make(groups);
    second->load_state(state);
    train(*second, halves, 10, 20);
    for (std::size_t i = 0; i < whole.ours.size(); ++i) {
      CAPTURE(whole.ours[i].first);
      CHECK(torch::allclose(whole.ours[i].second, halves.ours[i].second, 0, 1e-15));
    }
  }
}

TEST_CASE("loading replaces everything: parameters that the state doesn't name start from scratch") {
  const beside_torch::Twins twins(at::kDouble);
  for (const beside_torch::Ours& make : all_kinds()) {
    const auto optimizer = make(beside_torch::groups_of(twins.ours, false));
    train(*optimizer, twins, 0, 5);
    CHECK_FALSE(optimizer->state().empty());
    optimizer->load_state({});
    CHECK(optimizer->state().empty());
  }
}

TEST_CASE("a state that doesn't fit is refused by name and nothing is changed") {
  const beside_torch::Twins twins(at::kDouble);
  etude::AdamW optimizer(beside_torch::groups_of(twins.ours, false));
  train(optimizer, twins, 0, 5);
  const etude::NamedTensors good = clones(optimizer.state());
  const auto refuses = [&](etude::NamedTensors state, const char* text) {
    CHECK_THROWS_WITH_AS(optimizer.load_state(state), doctest::Contains(text), etude::CheckpointError);
    const etude::NamedTensors now = optimizer.state();
    REQUIRE(now.size() == good.size());
    for (std::size_t i = 0; i < now.size(); ++i) CHECK(torch::equal(now[i].second, good[i].second));
  };
  auto bad = clones(good);
  entry(bad, "b.bias.exp_avg") = torch::zeros({4});
  refuses(bad, "'b.bias.exp_avg' is Float [4], expected a floating-point tensor [3]");
  for (const torch::Tensor& step :
       {torch::tensor(-1), torch::tensor(0), torch::tensor(3.0), torch::tensor(true), torch::tensor({1, 2}),
        torch::scalar_tensor(std::int64_t{1} << 53, at::kLong), torch::Tensor()}) {
    bad = clones(good);
    entry(bad, "b.bias.step") = step;
    refuses(bad, "'b.bias.step' isn't a positive whole number below 2^53");
  }
  bad = clones(good);
  entry(bad, "b.bias.exp_avg") = torch::zeros({3}, at::kLong);
  refuses(bad, "'b.bias.exp_avg' is Long [3], expected a floating-point tensor [3]");
  entry(bad, "b.bias.exp_avg") = torch::zeros({3}).to_sparse();
  refuses(bad, "'b.bias.exp_avg' is");
  entry(bad, "b.bias.exp_avg") = torch::Tensor();
  refuses(bad, "'b.bias.exp_avg' is undefined");
  bad = clones(good);
  bad.push_back(bad.front());
  refuses(bad, "contains 'a.weight.step' twice");
  bad = clones(good);
  std::erase_if(bad, [](const auto& item) { return item.first == "a.weight.exp_avg_sq"; });
  refuses(bad, "'a.weight' has no 'exp_avg_sq'");
  std::erase_if(bad, [](const auto& item) { return item.first == "a.weight.step"; });
  refuses(bad, "'a.weight' has no 'step'");
  bad = clones(good);
  bad.emplace_back("a.weight.max_exp_avg_sq", torch::zeros({6, 5}));
  refuses(bad, "'a.weight' has an unknown 'max_exp_avg_sq'");
  bad = clones(good);
  bad.emplace_back("gone.weight.step", torch::tensor(1));
  refuses(bad, "'gone.weight', which isn't a parameter of this optimizer");
  bad = clones(good);
  bad.emplace_back("noise", torch::tensor(1));
  refuses(bad, "'noise' isn't a valid name of optimizer state");
  // Frozen parameters have names too; their state is dropped.
  bad = clones(good);
  bad.emplace_back("frozen.weight.step", torch::tensor(1));
  optimizer.load_state(bad);
  CHECK(optimizer.state().size() == good.size());
}

TEST_CASE("the state is views of the optimizer's memory: a step and the moments of each updated parameter") {
  const beside_torch::Twins twins(at::kFloat);
  etude::AdamW optimizer(beside_torch::groups_of(twins.ours, false), {.amsgrad = true});
  train(optimizer, twins, 0, 2);
  // Seven parameters of nine: one is frozen, one never got a gradient.
  CHECK(optimizer.state().size() == 7 * (1 + 3));
  auto before = optimizer.state();
  const torch::Tensor moment = entry(before, "b.weight.exp_avg");
  const torch::Tensor copy = moment.clone();
  train(optimizer, twins, 2, 3);
  auto after = optimizer.state();
  CHECK(moment.is_alias_of(entry(after, "b.weight.exp_avg")));
  CHECK_FALSE(torch::equal(moment, copy));
}

TEST_CASE(
    "moments follow the parameters to another dtype, and a frozen parameter joins when it is unfrozen") {
  for (const beside_torch::Ours& make : all_kinds()) {
    const beside_torch::Twins twins(at::kFloat), plain(at::kDouble);
    const auto optimizer = make(beside_torch::groups_of(twins.ours, true));
    const auto reference = make(beside_torch::groups_of(plain.ours, true));
    train(*optimizer, twins, 0, 10);
    train(*reference, plain, 0, 10);
    for (const auto& [name, tensor] : twins.ours) tensor.set_data(tensor.detach().to(at::kDouble));
    for (const auto& [name, tensor] : twins.theirs) tensor.set_data(tensor.detach().to(at::kDouble));
    twins.ours[5].second.set_requires_grad(true);
    train(*optimizer, twins, 10, 20);
    train(*reference, plain, 10, 20);
    for (std::size_t i = 0; i < plain.ours.size(); ++i) {
      CAPTURE(plain.ours[i].first);
      CHECK(torch::allclose(twins.ours[i].second, plain.ours[i].second, 1e-3, 1e-3));
    }
    CHECK(optimizer->flat_parameters().layout()->find("frozen.weight") != nullptr);
  }
}

TEST_CASE("a whole training step of a module equals torch's, with clipping") {
  torch::manual_seed(3);
  torch::nn::Linear ours_module(5, 3), theirs_module(5, 3);
  theirs_module->weight.set_data(ours_module->weight.detach().clone());
  theirs_module->bias.set_data(ours_module->bias.detach().clone());
  etude::AdamW ours(etude::parameter_groups(*ours_module, 0.0), {.lr = 0.01, .weight_decay = 0});
  torch::optim::AdamW theirs(theirs_module->parameters(), torch::optim::AdamWOptions(0.01).weight_decay(0));
  for (int step = 0; step < 100; ++step) {
    const torch::Tensor x = torch::randn({8, 5}), y = torch::randn({8, 3});
    ours.zero_grad();
    torch::mse_loss(ours_module->forward(x), y).backward();
    const double norm = ours.clip_grad_norm(0.5).item<double>();
    ours.step();
    theirs.zero_grad();
    torch::mse_loss(theirs_module->forward(x), y).backward();
    CHECK(torch::nn::utils::clip_grad_norm_(theirs_module->parameters(), 0.5) ==
          doctest::Approx(norm).epsilon(1e-4));
    theirs.step();
  }
  CHECK(torch::allclose(ours_module->weight, theirs_module->weight, 1e-4, 1e-5));
}

TEST_CASE("a closure is called with gradients on, and its loss comes back") {
  const torch::Tensor a = torch::ones({2}).set_requires_grad(true);
  etude::SGD sgd({{.parameters = {{"a", a}}, .lr = 0.5, .weight_decay = {}}});
  const torch::NoGradGuard no_grad;
  const torch::Tensor loss = sgd.step([&] {
    sgd.zero_grad();
    torch::Tensor value = a.square().sum();
    value.backward();
    return value;
  });
  CHECK(loss.item<double>() == 2);
  CHECK(a.eq(0).all().item<bool>());
  CHECK_FALSE(sgd.needs_closure());
  CHECK(sgd.param_groups()[0].initial_lr == 0.5);
}

TEST_CASE("a model without parameters, or with frozen ones only, is an error") {
  CHECK_THROWS_WITH_AS(
      etude::SGD({}),
      "the optimizer has no parameters to train: either all are frozen or the model has none (layers need "
      "register_module)",
      etude::ArgumentError);
  CHECK_THROWS_AS(etude::SGD({{.parameters = {{"a", torch::zeros({2})}}, .lr = {}, .weight_decay = {}}}),
                  etude::ArgumentError);
}

}  // namespace optim_optimizer_test
