#include "etude/callbacks/gradual_unfreezing.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "common/ranks.hpp"
#include "common/toy.hpp"

namespace callbacks_gradual_unfreezing_test {

using etude::GradualUnfreezingCallback;
using Names = std::vector<std::string>;

/// Four layers, three of them in a stack, and a parameter of the model itself.
struct NetImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) {
    for (const auto& layer : *layers) x = torch::tanh(layer->as<torch::nn::Linear>()->forward(x));
    return head(x) * scale;
  }
  torch::nn::ModuleList layers = register_module(
      "layers",
      torch::nn::ModuleList(torch::nn::Linear(1, 3), torch::nn::Linear(3, 3), torch::nn::Linear(3, 3)));
  torch::nn::Linear head = register_module("head", torch::nn::Linear(3, 1));
  torch::Tensor scale = register_parameter("scale", torch::ones({1}));
};
TORCH_MODULE(Net);

/// A letter for each of the four layers after each step: t if the step trained the layer, else f.
struct Watch {
  std::vector<torch::Tensor> before = {};
  Names trained = {};
  bool scale_stays = true;
  static std::vector<torch::Tensor> weights(const etude::Context& e) {
    std::vector<torch::Tensor> copies;
    for (const auto& [name, tensor] : e.model.named_parameters())
      if (name.ends_with("weight") || name == "scale") copies.push_back(tensor.detach().clone());
    return copies;
  }
  void on(const etude::StepBegin& e) { before = weights(e); }
  void on(const etude::StepEnd& e) {
    const auto after = weights(e);  // "scale" is the first
    scale_stays = scale_stays && torch::equal(before[0], after[0]);
    std::string letters;
    for (std::size_t i = 1; i < after.size(); ++i) letters += torch::equal(before[i], after[i]) ? 'f' : 't';
    trained.push_back(letters);
  }
};

etude::TrainerOptions options(double epochs) {
  auto result = toy::options(toy::arguments(), 2);
  torch::manual_seed(2);
  result.model = Net();
  result.args.num_train_epochs = epochs;
  result.args.weight_decay = 0.1;
  return result;
}

Names trained(const etude::TrainerOptions& options, GradualUnfreezingCallback callback) {
  etude::Trainer trainer(options, std::move(callback), Watch{});
  trainer.train();
  for (const auto& [name, tensor] : trainer.model().named_parameters()) CHECK(tensor.requires_grad());
  return trainer.template callback<Watch>().trained;
}

const Names layers{"layers.*", "head"};

TEST_CASE("one group more trains in each epoch, from the last to the first") {
  CHECK(trained(options(5), {.layer_groups = layers}) ==
        Names{"ffft", "ffft", "fftt", "fftt", "fttt", "fttt", "tttt", "tttt", "tttt", "tttt"});
  // The children of the model are "layers" and "head".
  CHECK(trained(options(2), {.unfreeze_every = 3}) == Names{"ffft", "ffft", "ffft", "tttt"});
}

TEST_CASE("moments may be given one by one, and groups without one stay frozen") {
  CHECK(trained(options(3), {.layer_groups = layers, .unfreeze_at = {1, "2ep"}}) ==
        Names{"ffft", "fftt", "fftt", "fftt", "fttt", "fttt"});
}

TEST_CASE("parameters that are frozen when training begins stay so") {
  auto given = options(2);
  given.parameter_groups = {{"scale", {.frozen = true}}};
  etude::Trainer trainer(given, GradualUnfreezingCallback{.layer_groups = layers}, Watch{});
  trainer.train();
  CHECK(trainer.callback<Watch>().scale_stays);
  trainer.train();
  CHECK(trainer.callback<Watch>().trained.back() == "fftt");
}

TEST_CASE("frozen groups can be kept in evaluation mode") {
  struct Modes {
    Net net;
    std::string modes = {};
    void on(const etude::StepEnd&) {
      for (const auto& layer : *net->layers) modes += layer->is_training() ? 't' : 'e';
      modes += ' ';
    }
  };
  auto given = options(2);
  Net net;
  given.model = net;
  etude::Trainer trainer(
      given, GradualUnfreezingCallback{.layer_groups = layers, .set_modules_as_eval = true}, Modes{net});
  trainer.train();
  CHECK(trainer.callback<Modes>().modes == "eee eet eet ett ");
}

TEST_CASE("a training that continues from a checkpoint between two unfreezings gives the same weights") {
  const toy::Folder folder;
  auto given = options(4);
  toy::save_to(folder, given.args, 1);
  const auto run = [&](const etude::TrainOptions& how) {
    torch::manual_seed(2);
    given.model = Net();
    etude::Trainer trainer(given, GradualUnfreezingCallback{.layer_groups = layers}, Watch{});
    trainer.train(how);
    std::vector<torch::Tensor> weights;
    for (const auto& tensor : trainer.model().parameters()) weights.push_back(tensor.detach().clone());
    return std::pair(weights, trainer.callback<Watch>().trained);
  };
  const auto whole = run({}).first;
  for (const int step : {1, 3, 4, 5}) {
    CAPTURE(step);
    const auto [weights, letters] =
        run({.resume_from_checkpoint = folder / fmt::format("checkpoint-{}", step)});
    REQUIRE(letters.size() == static_cast<std::size_t>(8 - step));
    CHECK(letters[0] == Names{"", "ffft", "", "fftt", "fttt", "fttt"}[static_cast<std::size_t>(step)]);
    for (std::size_t i = 0; i < whole.size(); ++i) CHECK(torch::equal(weights[i], whole[i]));
  }
}

template <class Policy>
std::vector<torch::Tensor> trained_by(std::int64_t batch) {
  auto given = toy::options(toy::arguments(), 8);
  torch::manual_seed(2);
  given.model = Net();
  given.args.per_device_train_batch_size = batch;
  given.args.num_train_epochs = 3;
  given.args.max_grad_norm = 0.1;
  given.parameter_groups = {{"layers", {.lr_factor = 0.5}}, {"*.bias", {.weight_decay = 0.1}}};
  etude::Trainer<Policy, GradualUnfreezingCallback> trainer(
      given, GradualUnfreezingCallback{.layer_groups = layers, .unfreeze_every = 1});
  trainer.train();
  std::vector<torch::Tensor> weights;
  for (const auto& tensor : trainer.model().parameters()) weights.push_back(tensor.detach().clone());
  return weights;
}

TEST_CASE("two processes with groups that are unfrozen train as one, with and without shards") {
  if (toy::launches(2)) return;
  std::vector<std::vector<torch::Tensor>> together;
  together.push_back(trained_by<etude::DistributedDataParallel>(2));
  together.push_back(trained_by<etude::ShardedDataParallel<1>>(2));
  together.push_back(trained_by<etude::ShardedDataParallel<2>>(2));
  const toy::Alone alone;
  const auto one = trained_by<etude::SingleProcess>(4);
  for (const auto& weights : together)
    for (std::size_t i = 0; i < one.size(); ++i) CHECK(torch::allclose(weights[i], one[i], 1e-4, 1e-6));
}

TEST_CASE("wrong names, moments and intervals are errors before training") {
  const auto fails = [](GradualUnfreezingCallback callback, const char* message) {
    etude::Trainer trainer(options(1), std::move(callback));
    CHECK_THROWS_WITH_AS(trainer.train(), doctest::Contains(message), etude::ArgumentError);
  };
  fails({.layer_groups = {"layer.*", "head"}},
        "layer_groups has 'layer.*': must name a module, such as layers, ");
  fails({.layer_groups = {"layers.1", "layers"}},
        "layer_groups has 'layers.1' and 'layers': must be separate, but one of them contains the other");
  fails({.unfreeze_every = "30s"},
        "unfreeze_every is 30s: must be epochs, such as 1ep, or update steps, above 0");
  fails({.unfreeze_at = {1, 2}}, "unfreeze_at has 2 moments: must be at most 1 for 2 layer groups");
}

}  // namespace callbacks_gradual_unfreezing_test
