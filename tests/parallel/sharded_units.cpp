#include "etude/parallel/sharded_units.hpp"

#include <doctest/doctest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "common/fault_of.hpp"
#include "common/ranks.hpp"
#include "etude/base/error.hpp"
#include "etude/optim/rules/adam.hpp"
#include "etude/parallel/gradient_reducer.hpp"
#include "etude/parallel/shards.hpp"

namespace parallel_sharded_units_test {

using toy::Faults;

struct BlockImpl : torch::nn::Module {
  torch::nn::Linear linear{register_module("linear", torch::nn::Linear(8, 8))};
  torch::nn::LayerNorm norm{register_module("norm", torch::nn::LayerNorm(std::vector<std::int64_t>{8}))};
  torch::nn::Linear unused{register_module("unused", torch::nn::Linear(3, 3))};
  std::function<void()> in_forward = [] {};
  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& scale) {
    in_forward();
    return x + torch::relu(norm(linear(x))) * scale;
  }
};
TORCH_MODULE(Block);

struct NetImpl : torch::nn::Module {
  NetImpl() {
    for (int i = 0; i < 3; ++i) blocks->push_back(Block());
  }
  torch::nn::Linear first{register_module("first", torch::nn::Linear(5, 8))};
  etude::Units<Block> blocks{register_module("blocks", etude::Units<Block>())};
  torch::nn::Linear last{register_module("last", torch::nn::Linear(8, 1))};
  torch::Tensor forward(const torch::Tensor& input) {
    auto x = first(input);
    for (const auto& block : *blocks) x = block(x, torch::full({1}, 0.5));
    x = (*blocks)[0](x, torch::full({1}, 2.0));  // a unit may be called twice
    return last(x);
  }
};
TORCH_MODULE(Net);

struct Run {
  std::function<etude::Model()> make = [] { return Net(); };
  bool sharded = true;
  std::int64_t steps = 5;
  std::int64_t accumulation = 2;
  // Called after each step, with the state of the run.
  std::function<void(const etude::Model&, etude::FlatParameters&, etude::ShardedUnits*)> after = {};
};

std::mutex seeding;  // Models take their weights from one generator.

std::vector<torch::Tensor> train(etude::Communicator& ranks, const Run& run) {
  etude::Model model;
  {
    const std::lock_guard lock(seeding);
    torch::manual_seed(3);
    model = run.make();
  }
  std::vector<etude::ParameterGroup> groups(2);
  std::vector<std::string> names;
  for (const auto& [name, parameter] : model.named_parameters()) {
    names.push_back(name);
    groups[name.ends_with("bias") ? 1 : 0].parameters.emplace_back(name, parameter);
  }
  groups[0].weight_decay = 0.1;
  etude::AdamW optimizer(groups, etude::AdamWOptions{.lr = 0.01});
  auto& flat = optimizer.flat_parameters();
  std::optional<etude::ShardedUnits> units;
  if (run.sharded)
    etude::shard(optimizer, ranks, etude::ShardStage::parameters, 256, etude::unit_of_parameters(model));
  etude::GradientReducer reducer(ranks, {&flat}, names, 700);
  if (run.sharded) units.emplace(model, std::vector<etude::FlatParameters*>{&flat});

  for (std::int64_t step = 0; step < run.steps; ++step) {
    optimizer.zero_grad();
    for (std::int64_t pass = 0; pass < run.accumulation; ++pass) {
      const bool sums = pass + 1 == run.accumulation || reducer.sums_every_backward();
      if (sums) reducer.begin();
      auto random = at::make_generator<at::CPUGeneratorImpl>(
          static_cast<std::uint64_t>(step * run.accumulation + pass));
      const auto all = torch::randn({8, 5}, random);
      const auto own = all.chunk(ranks.world_size())[static_cast<std::size_t>(ranks.rank())];
      (model.forward(etude::Tensors(own))[0].square().sum() / 16).backward();
      if (sums) reducer.finish();
    }
    optimizer.clip_grad_norm_in_step(0.5);
    optimizer.step();
    if (run.after) run.after(model, flat, units ? &*units : nullptr);
  }
  std::optional<etude::ShardedUnits::Whole> whole;
  if (units) whole.emplace(&*units);
  std::vector<torch::Tensor> weights;
  for (const auto& [name, parameter] : model.named_parameters())
    weights.push_back(parameter.detach().clone());
  return weights;
}

std::vector<torch::Tensor> alone(Run run) {
  run.sharded = false;
  etude::Communicator one;
  return train(one, run);
}

// The results of all ranks.
std::vector<std::vector<torch::Tensor>> train_as(std::int64_t world, const Run& run) {
  std::vector<std::vector<torch::Tensor>> results(static_cast<std::size_t>(world));
  const auto faults = toy::as_ranks(world, [&](etude::Communicator& ranks) {
    results[static_cast<std::size_t>(ranks.rank())] = train(ranks, run);
  });
  REQUIRE(faults == Faults(static_cast<std::size_t>(world)));
  return results;
}

void check_close(const std::vector<torch::Tensor>& ours, const std::vector<torch::Tensor>& expected) {
  REQUIRE(ours.size() == expected.size());
  for (std::size_t i = 0; i < ours.size(); ++i) {
    CAPTURE(i);
    CHECK(torch::allclose(ours[i], expected[i], 1e-4, 1e-6));
  }
}

std::int64_t bytes_of(const etude::FlatParameters& flat) {
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < flat.values().size(); ++i) {
    bytes += flat.values()[i].storage().nbytes();
    if (flat.owned_values(i).defined()) bytes += flat.owned_values(i).nbytes();
  }
  return static_cast<std::int64_t>(bytes);
}

TEST_CASE("with the parameters of units divided among 2 or 4 processes, weights are those of one process") {
  const auto expected = alone({});
  for (const std::int64_t world : {2, 4})
    for (const auto& weights : train_as(world, {})) check_close(weights, expected);
}

// A block has 8 x 8 + 8 numbers in `linear`, 16 in `norm` and 9 + 3 in `unused`; each parameter is padded to
// 16.
constexpr std::int64_t matrices = 64 + 16 + 16, biases = 16 + 16 + 16;
// A unit's buffer holds whole multiples of 16 numbers for each process.
std::int64_t unit_bytes(std::int64_t world) {
  return ((matrices + biases) / 16 + world - 1) / world * world * 64;
}

std::int64_t outside_bytes(std::int64_t world) {
  return ((48 + 16 + 16 + 16) / 16 + world - 1) / world * world * 64;  // 8 x 5, 8, 8 and 1 numbers
}

TEST_CASE("a process keeps its share of the units, and one whole unit at a time while they are used") {
  for (const std::int64_t world : {2, 3}) {
    CAPTURE(world);
    const auto resting = outside_bytes(world) + 3 * unit_bytes(world) / world;
    std::mutex mutex;
    std::vector<std::int64_t> in_use, between;
    Run run;
    run.after = [&](const etude::Model& model, etude::FlatParameters& flat, etude::ShardedUnits*) {
      const std::lock_guard lock(mutex);
      between.push_back(bytes_of(flat));
      for (const auto& unit : etude::units(model))
        unit.module->as<BlockImpl>()->in_forward = [&] {
          const std::lock_guard also(mutex);
          in_use.push_back(bytes_of(flat));
        };
    };
    train_as(world, run);
    CHECK(between == std::vector<std::int64_t>(static_cast<std::size_t>(world * 5), resting));
    CHECK(in_use.size() == static_cast<std::size_t>(world * 4 * 2 * 4));
    for (const auto bytes : in_use) CHECK(bytes == resting + unit_bytes(world));
  }
}

TEST_CASE("weights that are changed while they are whole are kept") {
  Run run;
  run.after = [](const etude::Model& model, etude::FlatParameters&, etude::ShardedUnits* units) {
    const etude::ShardedUnits::Whole whole(units), again(units);
    const torch::NoGradGuard no_grad;
    for (auto& parameter : model.parameters()) parameter.mul_(0.5);
  };
  const auto expected = alone(run);
  for (const auto& weights : train_as(2, run)) check_close(weights, expected);
}

TEST_CASE("a Sequential's children come and go as well") {
  Run run;
  run.make = [] {
    return torch::nn::Sequential(torch::nn::Linear(5, 9), torch::nn::Tanh(), torch::nn::Linear(9, 1));
  };
  const auto expected = alone(run);
  for (const auto& weights : train_as(2, run)) check_close(weights, expected);
}

TEST_CASE("a parameter that two units share, or one with the rest of the model, is refused by name") {
  torch::nn::Linear tied(3, 3), other(3, 3);
  other->weight = other->register_parameter("also", tied->weight);
  CHECK_THROWS_WITH_AS(etude::unit_of_parameters(torch::nn::Sequential(tied, other)),
                       "parameters '0.weight' and '1.also' are one tensor: with ShardedDataParallel<3>, a "
                       "parameter must belong to one unit, or to none",
                       etude::ArgumentError);
  Net net;
  net->register_parameter("mine", (*net->blocks)[1]->linear->bias);
  CHECK(toy::fault_of<etude::ArgumentError>([&] {
          etude::unit_of_parameters(net);
        }).starts_with("parameters 'mine' and 'blocks.1.linear.bias' are one tensor"));
}

TEST_CASE("parameters that are replaced while they are away are an error") {
  const auto faults = toy::as_ranks(2, [](etude::Communicator& ranks) {
    Run run;
    run.after = [](const etude::Model& model, etude::FlatParameters&, etude::ShardedUnits*) {
      for (auto& [name, parameter] : model.named_parameters())
        if (name == "blocks.2.linear.bias") parameter.set_data(torch::zeros({8}));
    };
    train(ranks, run);
  });
  for (const auto& fault : faults)
    CHECK(fault ==
          "parameter 'blocks.2.linear.bias' was changed while its values were away, as "
          "ShardedDataParallel<3> keeps them");
}

}  // namespace parallel_sharded_units_test
