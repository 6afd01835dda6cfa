#include "etude/optim/parameter_rules.hpp"

#include <doctest/doctest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "common/toy.hpp"
#include "etude/base/error.hpp"
#include "etude/optim/create.hpp"
#include "etude/training_arguments.hpp"

namespace optim_parameter_rules_test {

using Names = std::vector<std::string>;

etude::NamedTensors parameters(const Names& names) {
  etude::NamedTensors result;
  for (const auto& name : names) result.emplace_back(name, torch::zeros({1}).requires_grad_());
  return result;
}

/// Each non-empty group as "lr weight_decay: names"; "-" stands for the optimizer's option.
Names lines(const std::vector<etude::ParameterGroup>& groups) {
  Names result;
  const auto text = [](const std::optional<double>& value) {
    return value ? fmt::format("{:.4g}", *value) : "-";
  };
  for (const auto& group : groups) {
    if (group.parameters.empty()) continue;
    result.push_back(fmt::format("{} {}:", text(group.lr), text(group.weight_decay)));
    for (const auto& [name, tensor] : group.parameters) result.back() += " " + name;
  }
  return result;
}

TEST_CASE("a pattern names parameters, or modules with all that is in them") {
  CHECK(etude::names_parameter("encoder", "encoder.layers.0.weight"));
  CHECK(etude::names_parameter("encoder.*", "encoder.layers.0.weight"));
  CHECK(etude::names_parameter("*.layers.[0-3]", "encoder.layers.2.weight"));
  CHECK(etude::names_parameter("*.bias", "encoder.layers.0.bias"));
  CHECK_FALSE(etude::names_parameter("encoder", "encoders.weight"));
  CHECK_FALSE(etude::names_parameter("layers", "encoder.layers.0.weight"));
  CHECK_FALSE(etude::names_parameter("*.bias", "bias"));
  CHECK_FALSE(etude::names_parameter("*.layers.[0-3]", "encoder.layers.12.weight"));
}

TEST_CASE("rules add up, and where two set the same the later one wins") {
  const auto all =
      parameters({"encoder.0.weight", "encoder.0.bias", "encoder.1.weight", "head.weight", "head.bias"});
  const auto groups = etude::with_rules(
      etude::parameter_groups(all, 0.1),
      {{"encoder", {.lr = 0.02}}, {"*.bias", {.weight_decay = 0.3}}, {"encoder.1", {.lr_factor = 0.5}}}, 1.0);
  CHECK(lines(groups) == Names{"- 0.1: head.weight", "0.02 0.1: encoder.0.weight",
                               "0.5 0.1: encoder.1.weight", "0.02 0.3: encoder.0.bias", "- 0.3: head.bias"});
  CHECK(lines(etude::with_rules(etude::parameter_groups(all, 0.1), {{"head.weight", {.weight_decay = 0}}},
                                1)) ==
        Names{"- 0.1: encoder.0.weight encoder.1.weight", "- 0: head.weight encoder.0.bias head.bias"});
}

TEST_CASE("frozen parameters stay in a group, and a later rule makes an exception") {
  const auto all = parameters({"encoder.weight", "head.weight"});
  all[1].second.set_requires_grad(false);
  const etude::ParameterRules rules{{"*", {.frozen = true}}, {"head", {.frozen = false}}};
  CHECK(lines(etude::with_rules(etude::parameter_groups(all, 0.1), rules, 1.0)) ==
        Names{"- 0.1: encoder.weight head.weight"});
  etude::freeze_by_rules(rules, all);
  CHECK_FALSE(all[0].second.requires_grad());
  CHECK(all[1].second.requires_grad());
}

TEST_CASE("the text of an argument has the same rules, and errors name what is wrong in it") {
  const auto rules =
      etude::read_parameter_rules("encoder.*: lr=1e-5, frozen=true; *.bias:weight_decay=0;", "x");
  REQUIRE(rules.size() == 2);
  CHECK(rules[0].pattern == "encoder.*");
  CHECK(rules[0].settings.lr == 1e-5);
  CHECK(rules[0].settings.frozen == true);
  CHECK(rules[1].pattern == "*.bias");
  CHECK(rules[1].settings.weight_decay == 0.0);
  CHECK_THROWS_WITH_AS(
      etude::read_parameter_rules("a: rl=1", "parameter_groups"),
      "parameter_groups: a: 'rl' is unknown: must be one of lr, lr_factor, weight_decay, frozen; "
      "did you mean 'lr'?",
      etude::ArgumentError);
  CHECK_THROWS_WITH_AS(
      etude::validate({.parameter_groups = "encoder lr=1"}),
      "parameter_groups is 'encoder lr=1': must be pattern: name=value, name=value; pattern: "
      "..., but 'encoder lr=1' is not name: name=value",
      etude::ArgumentError);
}

TEST_CASE("a pattern that names nothing, and a value out of range, are errors that list the nearest names") {
  const auto all = parameters({"encoder.layers.0.weight", "encoder.layers.0.bias", "head.weight"});
  CHECK_THROWS_WITH_AS(
      etude::check_parameter_rules(
          {{"head", {}}, {"encodr.*", {.lr = 1}}, {"head.*", {.lr = -1, .lr_factor = 1}}}, all),
      "parameter_groups has the pattern 'encodr.*': must name a parameter or module, such as encoder, head, "
      "encoder.layers\n"
      "parameter_groups: head.*: lr is -1: must be at least 0 and finite, or unset\n"
      "parameter_groups: head.*: lr and lr_factor are both set: must be one of them",
      etude::ArgumentError);
}

TEST_CASE("depths count the numbered layers in their order, with what comes before and after them") {
  using Depths = std::vector<std::size_t>;
  CHECK(etude::layer_depths(parameters({"cls", "embed.weight", "encoder.layer.0.fc.0.weight",
                                        "encoder.layer.0.fc.2.weight", "encoder.layer.1.fc.0.weight",
                                        "norm.weight", "head.weight"})) == Depths{0, 0, 1, 1, 2, 3, 3});
  // Parameters between two stacks belong to the layer before them.
  CHECK(etude::layer_depths(parameters({"layer1.0.w", "layer1.1.w", "neck.w", "layer2.0.w", "fc.w"})) ==
        Depths{1, 2, 2, 3, 4});
  CHECK(etude::layer_depths(parameters({"0.weight", "0.bias", "2.weight", "10.weight"})) ==
        Depths{1, 1, 2, 3});
  CHECK_THROWS_WITH_AS(etude::layer_depths(parameters({"conv1.weight", "fc.weight"})),
                       doctest::Contains("needs layers with numbers in their names"), etude::ArgumentError);
}

TEST_CASE("layer-wise decay gives the head the full rate and each layer below a factor more") {
  // BEiT, with two blocks: 0.5^(3 - 0) for embeddings, 0.5^2, 0.5^1, and 1 for the head.
  const auto all = parameters({"embed.weight", "h.0.weight", "h.0.bias", "h.1.weight", "head.weight"});
  const auto groups = etude::with_layerwise_decay(etude::parameter_groups(all, 0.1), all, 0.8, 0.5);
  CHECK(lines(groups) == Names{"- 0.1: head.weight", "0.1 0.1: embed.weight", "0.2 0.1: h.0.weight",
                               "0.4 0.1: h.1.weight", "0.2 0: h.0.bias"});
}

struct NetImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) { return head(layers->forward(x)); }
  torch::nn::Sequential layers =
      register_module("layers", torch::nn::Sequential(torch::nn::Linear(1, 4), torch::nn::Linear(4, 4)));
  torch::nn::Linear head = register_module("head", torch::nn::Linear(4, 1));
};
TORCH_MODULE(Net);

TEST_CASE("arguments and options reach the optimizer, whose own learning rate is the one that is divided") {
  Net net;
  etude::TrainingArguments args;
  args.optim = etude::OptimizerNames::sgd;
  args.optim_args = "lr=0.4";
  args.weight_decay = 0.1;
  args.layerwise_learning_rate_decay = 0.5;
  args.parameter_groups = "head.bias: lr=7";
  const auto optimizer =
      etude::make_optimizer(args, *net, {{"head", {.lr_factor = 3}}, {"*.0.bias", {.lr = 5}}});
  Names found;
  for (const auto& group : optimizer->param_groups())
    for (const auto& [name, tensor] : group.parameters)
      found.push_back(fmt::format("{} {:.4g} {:.4g}", name, group.lr, group.weight_decay));
  CHECK(found == Names{"layers.0.weight 0.1 0.1", "layers.1.weight 0.2 0.1", "layers.1.bias 0.2 0",
                       "head.weight 1.2 0.1", "head.bias 7 0", "layers.0.bias 5 0"});
}

etude::NamedTensors copied(const etude::Model& model) {
  etude::NamedTensors result;
  for (const auto& [name, tensor] : model.named_parameters())
    result.emplace_back(name, tensor.detach().clone());
  return result;
}

Net seeded() {
  torch::manual_seed(1);
  return Net();
}

etude::TrainingArguments arguments() {
  auto args = toy::arguments();
  args.optim = etude::OptimizerNames::sgd;
  args.optim_args = "momentum=0.9";
  args.num_train_epochs = 1;
  args.lr_scheduler_type = etude::SchedulerType::linear;
  return args;
}

TEST_CASE("a training with rules equals one with torch's SGD and the same groups") {
  auto options = toy::options(arguments(), 6);
  options.model = seeded();
  options.args.weight_decay = 0.3;
  options.parameter_groups = {
      {"layers", {.lr = 0.01}}, {"*.bias", {.weight_decay = 0.5}}, {"layers.0", {.frozen = true}}};
  etude::Trainer trainer(options);
  const auto before = copied(trainer.model());
  trainer.train();

  auto net = seeded();
  const auto hidden = net->layers[1]->named_parameters();
  for (auto& parameter : net->layers[0]->parameters()) parameter.set_requires_grad(false);
  const auto set = [](double lr, double decay) {
    return std::make_unique<torch::optim::SGDOptions>(
        torch::optim::SGDOptions(lr).momentum(0.9).weight_decay(decay));
  };
  auto reference = toy::options(arguments(), 6);
  reference.model = net;
  reference.optimizer = std::make_shared<torch::optim::SGD>(
      std::vector<torch::optim::OptimizerParamGroup>{{{hidden["weight"]}, set(0.01, 0.3)},
                                                     {{hidden["bias"]}, set(0.01, 0.5)},
                                                     {{net->head->weight}, set(0.1, 0.3)},
                                                     {{net->head->bias}, set(0.1, 0.5)}},
      torch::optim::SGDOptions(0.1));
  etude::Trainer(reference).train();

  const auto after = copied(trainer.model()), expected = copied(net);
  for (std::size_t i = 0; i < after.size(); ++i) {
    CAPTURE(after[i].first);
    CHECK(torch::allclose(after[i].second, expected[i].second));
    CHECK(torch::equal(after[i].second, before[i].second) == after[i].first.starts_with("layers.0"));
  }
}

TEST_CASE("a training with rules continues exactly after a checkpoint") {
  const toy::Folder folder;
  auto options = toy::options(arguments(), 6);
  toy::save_to(folder, options.args, 3);
  options.args.parameter_groups = "layers: lr_factor=0.1; *.bias: weight_decay=0.5; layers.0: frozen=true";
  std::vector<etude::NamedTensors> results;
  for (const bool is_resumed : {false, true}) {
    options.model = seeded();
    etude::Trainer trainer(options);
    if (is_resumed)
      trainer.train({.resume_from_checkpoint = folder / "checkpoint-3"});
    else
      trainer.train();
    CHECK(trainer.state().global_step == 6);
    results.push_back(copied(trainer.model()));
  }
  for (std::size_t i = 0; i < results[0].size(); ++i) {
    CAPTURE(results[0][i].first);
    CHECK(torch::equal(results[1][i].second, results[0][i].second));
  }
}

TEST_CASE("groups beside an optimizer of one's own are refused") {
  auto options = toy::options(arguments());
  options.optimizer = std::make_shared<torch::optim::SGD>(options.model.parameters(), 0.1);
  options.args.layerwise_learning_rate_decay = 0.5;
  options.parameter_groups = {{"weight", {.lr = 1}}};
  CHECK_THROWS_WITH_AS(
      etude::Trainer{options},
      "parameter_groups and optimizer are both set: must be one of them, since that optimizer "
      "has its own groups\n"
      "layerwise_learning_rate_decay and optimizer are both set: must be one of them, since "
      "that optimizer has its own groups",
      etude::ArgumentError);
}

}  // namespace optim_parameter_rules_test
