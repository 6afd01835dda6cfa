#include <doctest/doctest.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/schedulers/step_lr.h>
#include <torch/optim/sgd.h>

#include "etude/optim/lr_scheduler.hpp"
#include "etude/optim/rules/adam.hpp"
#include "etude/optim/rules/lbfgs.hpp"
#include "etude/optim/torch_optimizer.hpp"

#include "compare.hpp"
#include "etude/base/error.hpp"
#include "sparse_table.hpp"

namespace optim_torch_optimizer_test {

std::vector<torch::optim::OptimizerParamGroup> torch_groups(const etude::NamedTensors& parameters) {
  std::vector<torch::Tensor> tensors;
  for (const auto& [name, tensor] : parameters) tensors.push_back(tensor);
  return {torch::optim::OptimizerParamGroup(tensors)};
}

std::vector<beside_torch::Theirs> all_kinds() {
  using namespace torch::optim;
  return {
      beside_torch::theirs<AdamW>(AdamWOptions(0.01).weight_decay(0.1).amsgrad(true)),
      beside_torch::theirs<Adam>(AdamOptions(0.01).weight_decay(0.1)),
      beside_torch::theirs<SGD>(SGDOptions(0.01).momentum(0.9).weight_decay(0.1)),
      beside_torch::theirs<SGD>(SGDOptions(0.01).momentum(0.9).dampening(0.5)),
      beside_torch::theirs<SGD>(SGDOptions(0.01)),
      beside_torch::theirs<RMSprop>(RMSpropOptions(0.01).momentum(0.9).centered(true).weight_decay(0.1)),
      beside_torch::theirs<Adagrad>(AdagradOptions(0.01).initial_accumulator_value(0.1).weight_decay(0.1))};
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

/// Rosenbrock's function of two parameters; the minimum is at (1, 1).
torch::Tensor rosenbrock(const torch::Tensor& x, const torch::Tensor& y) {
  return (1 - x).square().sum() + 100 * (y - x.square()).square().sum();
}

/// A user's optimizer, with additional options.
struct Unknown : torch::optim::SGD {
  struct Options : torch::optim::OptimizerCloneableOptions<Options> {
    double get_lr() const override { return lr; }
    void set_lr(const double value) override { lr = value; }
    double lr = 0.1;
  };
  using SGD::SGD;
};

TEST_CASE("a torch optimizer behaves the same on flat parameters, including undefined gradients") {
  for (const beside_torch::Theirs& make : all_kinds()) {
    const beside_torch::Twins twins(at::kDouble);
    etude::TorchOptimizer ours(make(torch_groups(twins.ours)), twins.ours);
    const auto theirs = make(torch_groups(twins.theirs));
    for (std::int64_t step = 0; step < 50; ++step) {
      ours.zero_grad();
      twins.set_gradients(step);
      ours.step();
      theirs->step();
    }
    CHECK(twins.difference() == 0);
  }
}

TEST_CASE("its state is stored and loaded by name, and Etude's of the same kind can continue from it") {
  for (const beside_torch::Theirs& make : all_kinds()) {
    const beside_torch::Twins whole(at::kDouble), halves(at::kDouble);
    etude::TorchOptimizer uninterrupted(make(torch_groups(whole.ours)), whole.ours);
    train(uninterrupted, whole, 0, 20);
    etude::NamedTensors state;
    {
      etude::TorchOptimizer first(make(torch_groups(halves.ours)), halves.ours);
      train(first, halves, 0, 10);
      state = first.state();
    }
    etude::TorchOptimizer second(make(torch_groups(halves.ours)), halves.ours);
    second.load_state(state);
    train(second, halves, 10, 20);
    for (std::size_t i = 0; i < whole.ours.size(); ++i)
      CHECK(torch::equal(whole.ours[i].second, halves.ours[i].second));
  }
  const beside_torch::Twins twins(at::kDouble), other(at::kDouble);
  etude::TorchOptimizer torchs(std::make_shared<torch::optim::AdamW>(torch_groups(twins.ours)), twins.ours);
  train(torchs, twins, 0, 10);
  for (std::size_t i = 0; i < other.ours.size(); ++i)
    other.ours[i].second.set_data(twins.ours[i].second.detach().clone());
  for (std::size_t i = 0; i < other.ours.size(); ++i)
    other.theirs[i].second.set_data(twins.theirs[i].second.detach().clone());
  etude::AdamW ours({{other.ours, {}, {}}});
  ours.load_state(torchs.state());
  train(torchs, twins, 10, 20);
  train(ours, other, 10, 20);
  for (std::size_t i = 0; i < other.ours.size(); ++i)
    CHECK(torch::allclose(twins.ours[i].second, other.ours[i].second, 0, 1e-14));
}

TEST_CASE("parameters that it doesn't hold are left out of the norm and don't accumulate gradients") {
  const torch::Tensor held = torch::ones({3}).set_requires_grad(true),
                      other = torch::ones({3}).set_requires_grad(true);
  const torch::Tensor extra = torch::ones({1}).set_requires_grad(true);
  etude::TorchOptimizer optimizer(
      std::make_shared<torch::optim::SGD>(std::vector<torch::Tensor>{held, extra}, 0.1),
      {{"held", held}, {"other", other}});
  for (int i = 0; i < 2; ++i) {
    optimizer.zero_grad();
    ((held * 2).sum() + (other * 100).sum() + extra.sum()).backward();
    CHECK(optimizer.grad_norm().item<double>() == doctest::Approx(std::sqrt(13.0)));
    CHECK(other.grad().eq(100).all().item<bool>());
  }
  optimizer.step();
  CHECK(other.eq(1).all().item<bool>());
  CHECK(optimizer.param_groups()[0].parameters[1].first == "param_groups.0.1");
}

TEST_CASE("the learning rate may be set on either side") {
  const torch::Tensor a = torch::ones({1}).set_requires_grad(true);
  const auto sgd = std::make_shared<torch::optim::SGD>(std::vector<torch::Tensor>{a}, 0.1);
  etude::TorchOptimizer optimizer(sgd, {{"a", a}});
  const auto step = [&] {
    optimizer.zero_grad();
    a.sum().backward();
    optimizer.step();
  };
  CHECK(optimizer.param_groups()[0].lr == 0.1);
  optimizer.param_groups()[0].lr = 0.5;
  step();
  CHECK(a.item<double>() == doctest::Approx(0.5));
  sgd->param_groups()[0].options().set_lr(0.25);
  CHECK(optimizer.param_groups()[0].lr == 0.25);
  step();
  CHECK(a.item<double>() == doctest::Approx(0.25));
}

TEST_CASE("torch's schedulers drive it, and can be resumed") {
  const torch::Tensor a = torch::ones({1}).set_requires_grad(true);
  const auto make = [&] { return std::make_shared<torch::optim::SGD>(std::vector<torch::Tensor>{a}, 1.0); };
  const auto sgd = make(), resumed_sgd = make();
  etude::TorchOptimizer optimizer(sgd, {{"a", a}}), resumed(resumed_sgd, {{"a", a}});
  etude::TorchLRScheduler scheduler(optimizer, std::make_shared<torch::optim::StepLR>(*sgd, 3, 0.5));
  for (int i = 0; i < 5; ++i) scheduler.step();
  CHECK(scheduler.get_last_lr() == 0.5);
  etude::TorchLRScheduler second(resumed, std::make_shared<torch::optim::StepLR>(*resumed_sgd, 3, 0.5));
  second.load_state(scheduler.state());
  for (int i = 0; i < 9; ++i) {
    CHECK(second.get_last_lr() == scheduler.get_last_lr());
    second.step();
    scheduler.step();
  }
  CHECK(scheduler.get_last_lr() < 0.5);
}

TEST_CASE("LBFGS finds the minimum through its closure, alike when stored and loaded midway") {
  const auto run = [](int interrupt_at, const char* line_search) {
    const torch::Tensor x = torch::full({1}, -1.5, at::kDouble).set_requires_grad(true);
    const torch::Tensor y = torch::full({1}, 2.0, at::kDouble).set_requires_grad(true);
    const etude::NamedTensors parameters{{"x", x}, {"y", y}};
    etude::LBFGSOptions options{.lr = 0.5, .max_iter = 4};
    if (*line_search) options.line_search_fn = etude::LineSearch::strong_wolfe;
    auto lbfgs = std::make_unique<etude::LBFGS>(etude::parameter_groups(parameters, 0), options);
    for (int step = 0; step < 30; ++step) {
      if (step == interrupt_at) {
        etude::NamedTensors state;
        for (const auto& [name, tensor] : lbfgs->state()) state.emplace_back(name, tensor.clone());
        CHECK_FALSE(state.empty());
        lbfgs = std::make_unique<etude::LBFGS>(etude::parameter_groups(parameters, 0), options);
        lbfgs->load_state(state);
      }
      lbfgs->step([&] {
        lbfgs->zero_grad();
        const torch::Tensor loss = rosenbrock(x, y);
        loss.backward();
        return loss;
      });
    }
    return std::pair(x.item<double>(), y.item<double>());
  };
  for (const char* line_search : {"", "strong_wolfe"}) {
    const auto whole = run(-1, line_search);
    CHECK(whole.first == doctest::Approx(1).epsilon(1e-3));
    CHECK(whole.second == doctest::Approx(1).epsilon(1e-3));
    CHECK(run(3, line_search) == whole);
  }
}

TEST_CASE("LBFGS needs a closure, one learning rate and no weight decay") {
  const torch::Tensor x = torch::ones({2}).set_requires_grad(true);
  const etude::NamedTensors parameters{{"x", x}};
  etude::LBFGS lbfgs(etude::parameter_groups(parameters, 0));
  CHECK(lbfgs.needs_closure());
  CHECK_THROWS_WITH_AS(lbfgs.step(), doctest::Contains("needs a closure"), etude::ArgumentError);
  CHECK_THROWS_WITH_AS(etude::LBFGS(etude::parameter_groups(parameters, 0.1)),
                       doctest::Contains("weight_decay is 0.1"), etude::ArgumentError);
  CHECK_THROWS_WITH_AS(lbfgs.load_state({{"lbfgs.d", torch::zeros({2})}}),
                       doctest::Contains("has no 'lbfgs.numbers'"), etude::CheckpointError);
  CHECK_THROWS_WITH_AS(
      lbfgs.load_state({{"lbfgs.numbers", torch::ones({4})}, {"lbfgs.d", torch::zeros({9})}}),
      doctest::Contains("'lbfgs.d' has sizes [9], expected [2]"), etude::CheckpointError);
}

TEST_CASE("parameters that a loaded state doesn't name start from scratch") {
  for (const beside_torch::Theirs& make : all_kinds()) {
    const beside_torch::Twins twins(at::kDouble);
    etude::TorchOptimizer ours(make(torch_groups(twins.ours)), twins.ours);
    train(ours, twins, 0, 3);
    ours.load_state({});
    CHECK(ours.state().empty());
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < twins.ours.size(); ++i) twins.theirs[i].second.copy_(twins.ours[i].second);
    const auto theirs = make(torch_groups(twins.theirs));
    for (std::int64_t step = 3; step < 9; ++step) {
      ours.zero_grad();
      twins.set_gradients(step);
      ours.step();
      theirs->step();
    }
    CHECK(twins.difference() == 0);
  }
}

TEST_CASE("a refused state changes nothing in torch's optimizer") {
  for (const beside_torch::Theirs& make : all_kinds()) {
    const beside_torch::Twins twins(at::kDouble);
    const auto inner = make(torch_groups(twins.ours)), fresh = make(torch_groups(twins.theirs));
    etude::TorchOptimizer ours(inner, twins.ours);
    etude::TorchOptimizer other(fresh, twins.theirs);
    train(ours, twins, 0, 3);
    etude::NamedTensors good;
    for (const auto& [name, tensor] : ours.state()) good.emplace_back(name, tensor.clone());
    // Only the last entry is invalid.
    etude::NamedTensors bad = good;
    bad.back().second = torch::zeros({7, 7});
    const auto states = fresh->state().size();  // not 0 for Adagrad
    CHECK_THROWS_AS(other.load_state(bad), etude::CheckpointError);
    CHECK(fresh->state().size() == states);
    CHECK(other.state().empty());
    CHECK_THROWS_AS(ours.load_state(bad), etude::CheckpointError);
    const etude::NamedTensors now = ours.state();
    REQUIRE(now.size() == good.size());
    for (std::size_t i = 0; i < now.size(); ++i) CHECK(torch::equal(now[i].second, good[i].second));
  }
}

TEST_CASE("a missing optimizer, and one with an unknown state, are errors") {
  CHECK_THROWS_AS(etude::TorchOptimizer(nullptr, {}), etude::ArgumentError);
  const torch::Tensor parameter = torch::ones({1}).set_requires_grad(true);
  const auto inner = std::make_shared<Unknown>(std::vector{parameter}, torch::optim::SGDOptions(0.1));
  inner->param_groups()[0].set_options(std::make_unique<Unknown::Options>());
  etude::TorchOptimizer unknown(inner, {{"parameter", parameter}});
  parameter.sum().backward();
  unknown.flat_parameters().begin_step();
  CHECK_THROWS_WITH_AS(unknown.state(), doctest::Contains("not LibTorch's own"), etude::CheckpointError);
}

TEST_CASE("LibTorch's optimizers see sparse gradients, and refuse them as they do in a plain loop") {
  using namespace torch::optim;
  const auto as_alone = [](auto make, bool exactly = false) {
    const sparse_table::Table etude, torch;
    etude::TorchOptimizer ours(make(std::vector<torch::Tensor>{etude.weight, etude.bias}), etude.all());
    const auto theirs = make(std::vector<torch::Tensor>{torch.weight, torch.bias});
    sparse_table::check_equal_steps(etude, ours, torch, *theirs);
    if (exactly) {
      CHECK(torch::equal(etude.weight, torch.weight));
    }
  };
  // If a row was read twice, LibTorch's SGD adds its two gradients one by one.
  as_alone([](auto tensors) { return std::make_shared<Adagrad>(tensors, AdagradOptions(0.1)); }, true);
  as_alone([](auto tensors) { return std::make_shared<SGD>(tensors, SGDOptions(0.1)); });
  as_alone([](auto tensors) { return std::make_shared<SGD>(tensors, SGDOptions(0.1).momentum(0.9)); });

  const sparse_table::Table table;
  etude::TorchOptimizer adam(std::make_shared<Adam>(std::vector<torch::Tensor>{table.weight, table.bias}),
                             table.all());
  table.backward(0);
  CHECK_THROWS_WITH(adam.step(), doctest::Contains("Adam does not support sparse gradients"));
}

TEST_CASE("a sparse momentum of LibTorch's SGD is stored as a dense one, from which training continues") {
  const auto make = [](const sparse_table::Table& table) {
    return std::make_unique<etude::TorchOptimizer>(
        std::make_shared<torch::optim::SGD>(std::vector<torch::Tensor>{table.weight, table.bias},
                                            torch::optim::SGDOptions(0.1).momentum(0.9)),
        table.all());
  };
  const auto run = [](const sparse_table::Table& table, etude::Optimizer& sgd, int from, int to) {
    for (int step = from; step < to; ++step) {
      sgd.zero_grad();
      table.backward(step);
      sgd.step();
    }
  };
  const sparse_table::Table whole, first, second;
  const auto uninterrupted = make(whole), before = make(first);
  run(whole, *uninterrupted, 0, 8);
  run(first, *before, 0, 4);
  second.weight.set_data(first.weight.detach().clone());
  second.bias.set_data(first.bias.detach().clone());
  const auto after = make(second);
  for (const auto& [name, tensor] : before->state()) CHECK_FALSE(tensor.is_sparse());
  after->load_state(before->state());
  run(second, *after, 4, 8);
  CHECK(torch::equal(whole.weight, second.weight));
}

TEST_CASE("LBFGS takes a sparse gradient as LibTorch's does, which makes it dense") {
  const sparse_table::Table sparse, dense;
  etude::LBFGS ours({{sparse.all(), {}, {}}}, {.lr = 0.1});
  torch::optim::LBFGS theirs({dense.weight, dense.bias}, torch::optim::LBFGSOptions(0.1).max_eval(25));
  for (const auto* table : {&sparse, &dense}) {
    auto closure = [&] {
      ours.zero_grad();
      theirs.zero_grad();
      table->backward(3);
      const torch::NoGradGuard no_grad;
      return (table->weight - 1).square().sum();
    };
    table == &sparse ? ours.step(closure) : theirs.step(closure);
  }
  CHECK(torch::allclose(sparse.weight, dense.weight, 1e-5, 1e-6));
}

TEST_CASE("the momentum that a schedule sets reaches LibTorch's optimizer") {
  const auto after_two_steps = [](std::optional<double> momentum) {
    const auto parameter = torch::zeros({1}).set_requires_grad(true);
    const auto sgd = std::make_shared<torch::optim::SGD>(std::vector<torch::Tensor>{parameter},
                                                         torch::optim::SGDOptions(1).momentum(0.5));
    etude::TorchOptimizer optimizer(sgd, etude::NamedTensors{{"weight", parameter}});
    for (int step = 0; step < 2; ++step) {
      optimizer.zero_grad();
      parameter.mutable_grad() = torch::ones({1});
      optimizer.param_groups()[0].momentum = momentum;
      optimizer.step();
    }
    return parameter.item<double>();
  };
  CHECK(after_two_steps(std::nullopt) == -2.5);
  CHECK(after_two_steps(0.25) == -2.25);
}

}  // namespace optim_torch_optimizer_test
