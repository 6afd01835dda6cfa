#include "etude/optim/model_freezer.hpp"

#include <doctest/doctest.h>

#include "common/toy.hpp"
#include "etude/base/error.hpp"

namespace optim_model_freezer_test {

using etude::ModelFreezer;
using Names = std::vector<std::string>;

/// A model with four layer groups, the second with several layers, including a batch norm, and a parameter
/// outside of them.
struct NetImpl : torch::nn::Module {
  NetImpl() {
    torch::manual_seed(3);
    first = register_module("first", torch::nn::Linear(1, 4));
    block = register_module("block", torch::nn::Sequential(torch::nn::Linear(4, 4), torch::nn::BatchNorm1d(4),
                                                           torch::nn::Tanh()));
    third = register_module("third", torch::nn::Linear(4, 4));
    head = register_module("head", torch::nn::Linear(4, 1));
    scale = register_parameter("scale", torch::ones({1}));
  }
  torch::Tensor forward(torch::Tensor x) {
    return head(torch::tanh(third(block->forward(first(x))))) * scale;
  }
  torch::nn::Linear first = nullptr, third = nullptr, head = nullptr;
  torch::nn::Sequential block = nullptr;
  torch::Tensor scale;
};
TORCH_MODULE(Net);

/// One letter for each layer group of Net: trainable, frozen, or partly frozen.
std::string frozen(Net& net) {
  std::string text;
  for (const auto& child : net->children()) {
    std::size_t trainable = 0;
    const auto parameters = child->parameters();
    for (const auto& parameter : parameters) trainable += parameter.requires_grad();
    text += trainable == 0 ? 'f' : trainable == parameters.size() ? 't' : 'p';
  }
  return text;
}

std::string modes(Net& net) {
  std::string text;
  for (const auto& child : net->children()) text += child->is_training() ? 'T' : 'E';
  return text;
}

Names names_of(const etude::NamedTensors& tensors) {
  Names names;
  for (const auto& [name, tensor] : tensors) names.push_back(name);
  return names;
}

TEST_CASE("layer groups are the direct children, layers the modules without children") {
  const ModelFreezer freezer{Net()};
  const auto names = [](const std::vector<etude::NamedModule>& modules) {
    Names result;
    for (const auto& [name, module] : modules) result.push_back(name);
    return result;
  };
  CHECK(names(freezer.get_layer_groups()) == Names{"first", "block", "third", "head"});
  CHECK(names(freezer.get_layers()) == Names{"first", "block.0", "block.1", "block.2", "third", "head"});
}

TEST_CASE("a freezer begins with everything unfrozen and all modes unchanged") {
  Net net;
  net->first->eval();
  for (auto& parameter : net->parameters()) parameter.set_requires_grad(false);
  const ModelFreezer freezer(net);
  CHECK(freezer.get_trainable_parameters().size() == net->parameters().size());
  CHECK(modes(net) == "ETTT");
}

TEST_CASE("ranges are inclusive, may count from the end, and may be given in either order") {
  struct Range {
    std::int64_t from, to;
    std::string result;
  };
  for (const auto& range : {Range{0, -2, "ffft"}, Range{0, 0, "fttt"}, Range{0, -1, "ffff"},
                            Range{-1, -1, "tttf"}, Range{1, 2, "tfft"}, Range{2, 1, "tfft"},
                            Range{-2, -3, "tfft"}, Range{-1, 2, "ttff"}, Range{-4, 3, "ffff"}}) {
    CAPTURE(range.from);
    CAPTURE(range.to);
    Net net;
    ModelFreezer freezer(net, {.freeze_batch_norms = true});
    freezer.freeze({.from_index = range.from, .to_index = range.to});
    CHECK(frozen(net) == range.result);
    CHECK(modes(net) == "TTTT");
  }
}

TEST_CASE("batch norms of a frozen group keep learning unless they are frozen too") {
  Net net;
  ModelFreezer freezer(net);
  freezer.freeze();
  CHECK(frozen(net) == "fpft");
  CHECK(names_of(freezer.get_trainable_parameters()) ==
        Names{"scale", "block.1.weight", "block.1.bias", "head.weight", "head.bias"});
  ModelFreezer with_norms(net, {.freeze_batch_norms = true});
  with_norms.freeze();
  CHECK(names_of(with_norms.get_trainable_parameters()) == Names{"scale", "head.weight", "head.bias"});
}

// pytorch-accelerated swaps its two flags: if they differ from the defaults, either parameters or modes don't
// change.
TEST_CASE("freezing with evaluation mode does both, and leaves learning batch norms in training mode") {
  Net net;
  ModelFreezer freezer(net);
  freezer.freeze({.set_modules_as_eval = true});
  CHECK(frozen(net) == "fpft");
  CHECK(modes(net) == "EEET");
  CHECK(net->block->children()[1]->is_training());
  CHECK_FALSE(net->block->children()[0]->is_training());
  ModelFreezer with_norms(net, {.freeze_batch_norms = true});
  with_norms.freeze({.set_modules_as_eval = true});
  CHECK_FALSE(net->block->children()[1]->is_training());
}

TEST_CASE("unfreezing without training mode leaves the modes unchanged") {
  Net net;
  ModelFreezer freezer(net);
  freezer.freeze({.from_index = 0, .to_index = -1, .set_modules_as_eval = true});
  freezer.unfreeze({.from_index = 0, .to_index = 1, .set_modules_as_training = false});
  CHECK(frozen(net) == "ttff");
  CHECK(modes(net) == "EEEE");
  freezer.unfreeze({.from_index = 2, .to_index = 2});
  CHECK(frozen(net) == "tttf");
  CHECK(modes(net) == "EETE");
}

TEST_CASE("unfreezing returns, once, the parameters of each group that weren't trainable before") {
  Net net;
  ModelFreezer freezer(net);
  freezer.freeze();
  auto unfrozen = freezer.unfreeze({.from_index = -1, .to_index = 1});
  REQUIRE(unfrozen.size() == 2);
  CHECK(unfrozen[0].name == "block");
  CHECK(names_of(unfrozen[0].parameters) == Names{"block.0.weight", "block.0.bias"});
  CHECK(unfrozen[0].parameters[0].second.is_same(net->named_parameters()["block.0.weight"]));
  CHECK(unfrozen[1].name == "third");
  unfrozen = freezer.unfreeze();
  REQUIRE(unfrozen.size() == 1);
  CHECK(unfrozen[0].name == "first");
  CHECK(freezer.unfreeze().empty());
}

TEST_CASE("unsupported options and inputs are refused by name") {
  ModelFreezer freezer{Net()};
  CHECK_THROWS_WITH_AS(freezer.freeze({.from_index = 4}),
                       "from_index is 4: must be -4 to 3 for a model with 4 layer groups",
                       etude::ArgumentError);
  CHECK_THROWS_WITH_AS(static_cast<void>(freezer.unfreeze({.to_index = -5})),
                       "to_index is -5: must be -4 to 3 for a model with 4 layer groups",
                       etude::ArgumentError);
  CHECK_THROWS_AS(ModelFreezer{toy::Line()}, etude::ArgumentError);
  torch::jit::Module script("Script");
  script.define("def forward(self, x):\n  return x\n");
  CHECK_THROWS_AS(ModelFreezer{etude::Model(script)}, etude::ArgumentError);
}

/// Unfreezes everything after a step, and records the weights after each.
struct Thaws {
  std::shared_ptr<ModelFreezer> freezer;
  std::int64_t at = 0;
  std::vector<std::vector<torch::Tensor>> weights = {};
  void on(const etude::StepEnd& e) {
    weights.emplace_back();
    for (const auto& tensor : e.model.parameters()) weights.back().push_back(tensor.detach().clone());
    if (e.state.global_step == at) freezer->unfreeze();
  }
};

TEST_CASE(
    "a frozen layer keeps its weights through training, weight decay or not, and learns when unfrozen") {
  using enum etude::OptimizerNames;
  for (const auto optimizer : {adamw_torch, sgd, adafactor})
    for (const bool freeze_in_training : {false, true}) {
      CAPTURE(optimizer);
      CAPTURE(freeze_in_training);
      auto args = toy::arguments();
      args.optim = optimizer;
      args.learning_rate = 0.01;
      args.weight_decay = 0.5;
      args.per_device_train_batch_size = 4;
      args.num_train_epochs = 3;
      Net net;
      const auto freezer =
          std::make_shared<ModelFreezer>(net, ModelFreezer::Options{.freeze_batch_norms = true});
      struct Freezes {
        std::shared_ptr<ModelFreezer> freezer;
        void on(const etude::TrainBegin&) { freezer->freeze(); }
      };
      if (!freeze_in_training) freezer->freeze();
      std::vector<torch::Tensor> before;
      for (const auto& tensor : net->parameters()) before.push_back(tensor.detach().clone());
      const auto names = net->named_parameters().keys();
      auto options = toy::options(args, 8);
      options.model = net;
      // With `freeze_in_training`, the optimizer has already put the group into its flat buffers when it is
      // frozen.
      etude::Trainer trainer(options,
                             Freezes{freeze_in_training ? freezer : std::make_shared<ModelFreezer>(Net())},
                             Thaws{freezer, 4});
      trainer.train();
      const auto& weights = trainer.callback<Thaws>().weights;
      REQUIRE(weights.size() == 6);
      for (std::size_t i = 0; i < names.size(); ++i) {
        CAPTURE(names[i]);
        const bool trained = names[i] == "scale" || names[i].starts_with("head");
        CHECK(torch::equal(weights[3][i], before[i]) != trained);
        // The gradient of a bias before a batch norm consists only of rounding errors.
        if (names[i].ends_with("weight")) CHECK_FALSE(torch::equal(weights[5][i], before[i]));
      }
    }
}

}  // namespace optim_model_freezer_test
