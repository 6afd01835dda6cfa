#include "etude/model/recomputation.hpp"

#include <doctest/doctest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/fault_of.hpp"
#include "common/toy.hpp"
#include "etude/base/error.hpp"
#include "etude/libtorch/autocast.hpp"
#include "etude/trainer.hpp"

namespace model_recomputation_test {

using Hidden = c10::weak_intrusive_ptr<c10::StorageImpl>;

/// A layer with dropout, running statistics, a mask, and a tensor that only its backward pass needs.
struct BlockImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& mask) {
    ++calls;
    const auto hidden = torch::tanh(first(x) * mask);
    kept.emplace(hidden.storage().getWeakStorageImpl());
    const auto dropped = torch::dropout(hidden, 0.3, is_training());
    return x + norm(second(dropped));
  }
  torch::nn::Linear first{register_module("first", torch::nn::Linear(6, 8))};
  torch::nn::Linear second{register_module("second", torch::nn::Linear(8, 6))};
  torch::nn::BatchNorm1d norm{register_module("norm", torch::nn::BatchNorm1d(6))};
  std::optional<Hidden> kept;
  int calls = 0;
};
TORCH_MODULE(Block);

struct NetImpl : torch::nn::Module {
  explicit NetImpl(bool has_stem = true) {
    torch::manual_seed(4);
    for (int i = 0; i < 3; ++i) blocks->push_back(Block());
    if (has_stem) stem = register_module("stem", torch::nn::Linear(6, 6));
    head = register_module("head", torch::nn::Linear(6, 2));
  }
  torch::Tensor forward(torch::Tensor x) {
    const auto mask = torch::ones({8}).index_fill_(0, torch::tensor({2}), 0.5);
    if (stem) x = stem(x);
    for (const auto& block : *blocks) x = block(x, mask);
    return head(x);
  }
  torch::nn::Linear stem{nullptr}, head{nullptr};
  etude::Units<Block> blocks{register_module("blocks", etude::Units<Block>())};
};
TORCH_MODULE(Net);

torch::Tensor inputs() { return torch::linspace(-2, 2, 60).sin().reshape({10, 6}); }

/// Runs two passes and returns all results: loss, gradients, buffers and the next random number.
std::vector<torch::Tensor> after_two_passes(Net net, bool recomputes, bool bf16 = false) {
  std::optional<etude::RecomputedUnits> units;
  const etude::Model model(net);
  if (recomputes) units.emplace(model);
  torch::manual_seed(7);
  std::vector<torch::Tensor> result;
  for (int pass = 0; pass < 2; ++pass) {
    torch::Tensor output;
    {
      std::optional<etude::AutocastGuard> lower;
      if (bf16) lower.emplace(torch::kCPU, torch::kBFloat16);
      output = net->forward(inputs());
    }
    const auto loss = output.to(torch::kFloat).square().mean();
    result.push_back(loss.detach());
    loss.backward();
  }
  for (const auto& parameter : net->parameters()) {
    CHECK(parameter.grad().defined());
    result.push_back(parameter.grad());
  }
  for (const auto& buffer : net->buffers()) result.push_back(buffer.clone());
  result.push_back(torch::rand({3}));
  return result;
}

TEST_CASE("losses, gradients, running statistics and random numbers are the same to the bit") {
  for (const bool has_stem : {true, false})
    for (const bool bf16 : {false, true}) {
      CAPTURE(has_stem);
      CAPTURE(bf16);
      const auto plain = after_two_passes(Net(has_stem), false, bf16);
      const auto recomputed = after_two_passes(Net(has_stem), true, bf16);
      REQUIRE(plain.size() == recomputed.size());
      for (std::size_t i = 0; i < plain.size(); ++i) {
        CAPTURE(i);
        CHECK(torch::equal(plain[i], recomputed[i]));
      }
    }
}

TEST_CASE("what a backward pass needs is freed after the forward pass, and computed again") {
  for (const bool recomputes : {false, true}) {
    CAPTURE(recomputes);
    Net net;
    const etude::Model model(net);
    std::optional<etude::RecomputedUnits> units;
    if (recomputes) units.emplace(model);
    const auto output = net->forward(inputs());
    for (const auto& block : *net->blocks) CHECK(block->kept->expired() == recomputes);
    output.sum().backward();
    for (const auto& block : *net->blocks) CHECK(block->calls == (recomputes ? 2 : 1));
    {
      const torch::NoGradGuard no_grad;
      net->forward(inputs());
    }
    units.reset();
    net->forward(inputs()).sum().backward();
    for (const auto& block : *net->blocks) CHECK(block->calls == (recomputes ? 4 : 3));
  }
}

TEST_CASE("frozen units and the layers of a Sequential, some of which return views, train as without") {
  const auto gradients = [](bool recomputes) {
    torch::manual_seed(2);
    torch::nn::Sequential net(torch::nn::Linear(6, 8), torch::nn::Tanh(), torch::nn::Dropout(0.2),
                              torch::nn::Identity(), torch::nn::Linear(8, 8), torch::nn::Flatten(),
                              torch::nn::Linear(8, 2));
    for (const auto& parameter : net[4]->parameters()) parameter.set_requires_grad(false);
    const etude::Model model(net);
    std::optional<etude::RecomputedUnits> units;
    if (recomputes) units.emplace(model);
    net->forward(inputs()).square().sum().backward();
    std::vector<torch::Tensor> result;
    for (const auto& parameter : net->parameters())
      if (parameter.requires_grad()) result.push_back(parameter.grad());
    return result;
  };
  const auto plain = gradients(false), recomputed = gradients(true);
  REQUIRE(plain.size() == 4);
  for (std::size_t i = 0; i < plain.size(); ++i) CHECK(torch::equal(plain[i], recomputed[i]));
}

TEST_CASE("a unit that changes its input, and a backward pass that creates a graph, are refused by name") {
  torch::nn::Sequential in_place(torch::nn::Linear(6, 8),
                                 torch::nn::ReLU(torch::nn::ReLUOptions(/*inplace=*/true)));
  const etude::Model model(in_place);
  const etude::RecomputedUnits units(model);
  CHECK(toy::fault_of<etude::Error>([&] { in_place->forward(inputs()); }) ==
        "gradient_checkpointing is true, and unit 1 of the model (torch::nn::ReLUImpl) changes its input in "
        "place: must not, since the backward pass needs it again");
  Net net;
  const etude::Model other(net);
  const etude::RecomputedUnits other_units(other);
  const auto loss = net->forward(inputs()).sum();
  CHECK(toy::contains(toy::fault_of<std::exception>([&] {
                        static_cast<void>(torch::autograd::grad(
                            {loss}, net->parameters(), {}, /*retain_graph=*/true, /*create_graph=*/true));
                      }),
                      "a backward pass through a unit can't create a graph"));
}

std::vector<torch::Tensor> trained(bool recomputes, bool bf16) {
  Net net;
  auto options = toy::options(toy::arguments());
  options.model = net;
  options.args.gradient_checkpointing = recomputes;
  options.args.bf16 = bf16;
  options.args.per_device_train_batch_size = 5;
  options.args.gradient_accumulation_steps = 2;
  options.args.num_train_epochs = 3;
  options.args.eval_strategy = etude::IntervalStrategy::epoch;
  options.train_dataset = {inputs().repeat({2, 1}), torch::linspace(0, 3, 40).cos().reshape({20, 2})};
  options.eval_dataset = options.train_dataset;
  options.args.log_level = etude::LogLevel::critical;
  etude::Trainer<etude::NoDefaultCallbacks, etude::DefaultFlowCallback> trainer(options);
  trainer.train();
  std::vector<torch::Tensor> result;
  for (const auto& [name, tensor] : trainer.model().state_dict()) result.push_back(tensor.clone());
  return result;
}

TEST_CASE("a training with gradient_checkpointing is the same to the bit, in float32 and in bf16") {
  for (const bool bf16 : {false, true}) {
    CAPTURE(bf16);
    const auto plain = trained(false, bf16), recomputed = trained(true, bf16);
    REQUIRE(plain.size() == recomputed.size());
    for (std::size_t i = 0; i < plain.size(); ++i) CHECK(torch::equal(plain[i], recomputed[i]));
  }
}

TEST_CASE("gradient_checkpointing of a model without units is refused by name") {
  auto options = toy::options(toy::arguments());
  options.args.gradient_checkpointing = true;
  CHECK(toy::contains(toy::fault_of<etude::ArgumentError>([&] { etude::Trainer<>(options).train(); }),
                      "has no units: must be a torch::nn::Sequential with layers"));
}

}  // namespace model_recomputation_test
