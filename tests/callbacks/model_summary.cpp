#include "etude/callbacks/model_summary.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "common/toy.hpp"

namespace callbacks_model_summary_test {

/// Two layers that share their weight.
struct TiedImpl : torch::nn::Module {
  struct Layer : torch::nn::Module {
    explicit Layer(const torch::Tensor& weight) { register_parameter("weight", weight); }
  };
  torch::Tensor forward(torch::Tensor x) { return x; }
  torch::Tensor weight = torch::ones({5});
  std::shared_ptr<Layer> one = register_module("one", std::make_shared<Layer>(weight));
  std::shared_ptr<Layer> two = register_module("two", std::make_shared<Layer>(weight));
};

/// Has a frozen layer, a block of three, and a direct parameter.
struct StackImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) { return x + scale; }
  torch::nn::Linear embed =
      register_module("embed", torch::nn::Linear(torch::nn::LinearOptions(4, 3).bias(false)));
  torch::nn::Sequential block = register_module(
      "block", torch::nn::Sequential(torch::nn::Linear(3, 3), torch::nn::ReLU(), torch::nn::BatchNorm1d(3)));
  torch::Tensor scale = register_parameter("scale", torch::ones({2, 2}));
  StackImpl() { embed->weight.set_requires_grad(false); }
};

using Rows = std::vector<std::vector<std::string>>;

Rows rows_of(const etude::ModelSummary& summary) {
  Rows rows;
  for (const auto& layer : summary.layers)
    rows.push_back({layer.name, layer.type, layer.shapes, std::to_string(layer.parameters),
                    std::to_string(layer.trainable)});
  return rows;
}

TEST_CASE("every layer is listed with its class, shapes and numbers of parameters") {
  const auto found = etude::summary(etude::Model(std::make_shared<StackImpl>()));
  CHECK(rows_of(found) == Rows{{"", "Stack", "scale [2, 2]", "4", "4"},
                               {"embed", "Linear", "weight [3, 4]", "12", "0"},
                               {"block.0", "Linear", "weight [3, 3], bias [3]", "12", "12"},
                               {"block.1", "ReLU", "", "0", "0"},
                               {"block.2", "BatchNorm1d", "weight [3], bias [3]", "6", "6"}});
  CHECK(found.parameters == 34);
  CHECK(found.trainable == 22);
  CHECK(found.parameter_bytes == 34 * 4);
  CHECK(found.buffer_bytes == 3 * 4 + 3 * 4 + 8);  // mean, variance, count
}

TEST_CASE("a module that was given a name is listed with it, as those of a model that Python exported") {
  auto model = std::make_shared<StackImpl>();
  model->register_module("norm", std::make_shared<torch::nn::Module>("LayerNorm"))
      ->register_parameter("weight", torch::ones({3}));
  const auto rows = rows_of(etude::summary(etude::Model(model)));
  CHECK(rows.back() == std::vector<std::string>{"norm", "LayerNorm", "weight [3]", "3", "3"});
}

TEST_CASE("deeper modules count towards the layer that contains them") {
  const etude::Model model(std::make_shared<StackImpl>());
  const auto children = etude::summary(model, 1);
  CHECK(rows_of(children) == Rows{{"", "Stack", "scale [2, 2]", "4", "4"},
                                  {"embed", "Linear", "weight [3, 4]", "12", "0"},
                                  {"block", "Sequential", "", "18", "18"}});
  CHECK(children.parameters == 34);
  const auto whole = etude::summary(model, 0);
  CHECK(rows_of(whole) == Rows{{"", "Stack", "scale [2, 2]", "34", "22"}});
}

TEST_CASE("a tensor used in two places counts once") {
  const auto found = etude::summary(etude::Model(std::make_shared<TiedImpl>()));
  REQUIRE(found.layers.size() == 2);
  CHECK(found.layers[0].parameters == 5);
  CHECK(found.layers[1].shapes == "weight [5]");
  CHECK(found.layers[1].parameters == 0);
  CHECK(found.parameters == 5);
  CHECK(found.parameter_bytes == 20);
}

TEST_CASE("TorchScript modules have layers too") {
  torch::jit::Module inner("Inner"), outer("Outer");
  inner.register_parameter("weight", torch::ones({2, 3}), false);
  outer.register_module("part", inner);
  outer.define("def forward(self, x):\n  return x + self.part.weight.sum()\n");
  const auto found = etude::summary(etude::Model(outer));
  REQUIRE(found.layers.size() == 1);
  CHECK(found.layers[0].name == "part");
  CHECK(found.layers[0].type == "Inner");
  CHECK(found.layers[0].shapes == "weight [2, 3]");
  CHECK(found.parameters == 6);
}

TEST_CASE("the table is printed when training begins") {
  std::string printed;
  etude::ModelSummaryCallback callback;
  callback.print = [&](std::string_view text) { printed += text; };
  auto options = toy::options(toy::arguments());
  const auto net = torch::nn::Sequential(torch::nn::Linear(1, 2048), torch::nn::Linear(2048, 1));
  struct HolderImpl : torch::nn::Module {
    torch::Tensor forward(torch::Tensor x) { return net->forward(x); }
    torch::nn::Sequential net;
    explicit HolderImpl(torch::nn::Sequential given) : net(register_module("net", std::move(given))) {}
  };
  options.model = std::make_shared<HolderImpl>(net);
  etude::Trainer<etude::ModelSummaryCallback>(options, callback).train();
  CHECK(printed ==
        "Name  Type        Shapes  Parameters  Trainable\n"
        "-------------------------------------------------\n"
        "net   Sequential               6,145        yes\n"
        "-------------------------------------------------\n"
        "6,145 parameters: 6,145 trainable, 0 frozen\n"
        "0.025 MB of parameters, 0.000 MB of buffers\n");
}

}  // namespace callbacks_model_summary_test
