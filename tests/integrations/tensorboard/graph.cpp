#include "etude/integrations/tensorboard/graph.hpp"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <string>

#include "integrations/tensorboard/read_events.hpp"

namespace integrations_tensorboard_graph_test {

using Nodes = std::map<std::string, toy::GraphDefNode>;
using Texts = std::vector<std::string>;

Nodes graph_of(etude::Model model) { return toy::nodes_of(etude::detail::tensorboard::graph_of(model)); }

struct BlockImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) { return body->forward(x) * scale; }
  torch::Tensor scale = register_parameter("scale", torch::ones({2}));
  torch::nn::Sequential body{register_module(
      "body", torch::nn::Sequential(torch::nn::Linear(2, 2), torch::nn::ReLU(), torch::nn::Linear(2, 2)))};
};

TEST_CASE("a module is shown as the tree of its layers, without invented operations") {
  const auto nodes = graph_of(std::make_shared<BlockImpl>());
  const toy::GraphDefNode linear{.op = "Linear", .attributes = "weight [2, 2], bias [2]"};
  CHECK(nodes == Nodes{{"Block/parameters", {.op = "Block", .attributes = "scale [2]"}},
                       {"Block/Sequential[body]/Linear[0]", linear},
                       {"Block/Sequential[body]/ReLU[1]", {.op = "ReLU"}},
                       {"Block/Sequential[body]/Linear[2]", linear}});
}

TEST_CASE("a TorchScript module is shown with its operations, in the layers that do them") {
  torch::jit::Module layer("Scale");
  layer.register_parameter("factor", torch::ones({3}), false);
  layer.register_attribute("power", c10::IntType::get(), 2);
  layer.define("def helper(self, x):\n  return x * self.factor\n");
  layer.define("def forward(self, x):\n  return torch.pow(self.helper(x), self.power)\n");
  torch::jit::Module net("Net");
  net.register_module("a", layer);
  net.register_module("b", layer);
  net.define(
      "def forward(self, x):\n  y = self.b.forward(self.a.forward(x))\n  return torch.sum(y, [0, 1])\n");
  const auto nodes = graph_of(net);
  CHECK(nodes.at("input/x").op == "IO Node");
  CHECK(nodes.at("Net/Scale[a]/factor") == toy::GraphDefNode{.op = "prim::GetAttr", .shape = {3}});
  CHECK(nodes.at("Net/Scale[a]/mul").inputs == Texts{"input/x", "Net/Scale[a]/factor"});
  CHECK(nodes.at("Net/Scale[a]/pow").inputs == Texts{"Net/Scale[a]/mul"});
  CHECK(nodes.at("Net/Scale[a]/pow").attributes == "exponent=power");
  CHECK(nodes.at("Net/Scale[b]/mul").inputs == Texts{"Net/Scale[a]/pow", "Net/Scale[b]/factor"});
  CHECK(nodes.at("Net/sum").inputs == Texts{"Net/Scale[b]/pow"});
  CHECK(nodes.at("Net/sum").attributes.starts_with("dim=[0, 1], keepdim="));
  CHECK(nodes.at("output/output").inputs == Texts{"Net/sum"});
  CHECK(nodes.size() == 9);
}

TEST_CASE("a layer that is used twice has its parameters once and its operations twice") {
  torch::jit::Module layer("Scale");
  layer.register_parameter("factor", torch::ones({3}), false);
  layer.define("def forward(self, x):\n  return x * self.factor\n");
  torch::jit::Module net("Net");
  net.register_module("a", layer);
  net.define("def forward(self, x):\n  return self.a.forward(self.a.forward(x))\n");
  const auto nodes = graph_of(net);
  CHECK(nodes.at("Net/Scale[a]/mul_1").inputs == Texts{"Net/Scale[a]/mul", "Net/Scale[a]/factor"});
  CHECK(nodes.count("Net/Scale[a]/factor_1") == 0);
}

TEST_CASE("branches and loops are connected to their outputs") {
  torch::jit::Module net("Net");
  net.define(R"(
def forward(self, x):
  if bool(x.sum() > 0):
    x = torch.relu(x)
  else:
    x = torch.neg(x)
  for i in range(3):
    x = torch.tanh(x)
  return x
)");
  const auto nodes = graph_of(net);
  const auto has = [&](const std::string& name, const std::string& input) {
    const auto& inputs = nodes.at(name).inputs;
    return std::find(inputs.begin(), inputs.end(), input) != inputs.end();
  };
  CHECK(has("Net/If", "Net/If_block/relu"));
  CHECK(has("Net/If", "Net/If_block/neg"));
  CHECK(has("Net/If_block/relu", "input/x"));
  CHECK(has("Net/Loop", "Net/If"));
  CHECK(has("Net/Loop_block/tanh", "Net/If"));
  CHECK(has("Net/Loop", "Net/Loop_block/tanh"));
  CHECK(nodes.at("output/output").inputs == Texts{"Net/Loop"});
}

TEST_CASE("known sizes of a traced module are shown") {
  torch::jit::Module net("Net");
  net.define("def forward(self, x):\n  return torch.relu(x)\n");
  auto graph = torch::jit::toGraphFunction(net.get_method("forward").function()).graph();
  graph->inputs()[1]->setType(c10::TensorType::create(torch::ones({2, 5})));
  const auto nodes = graph_of(net);
  CHECK(nodes.at("input/x").shape == std::vector<std::int64_t>{2, 5});
  CHECK(nodes.at("Net/relu").shape.empty());
}

}  // namespace integrations_tensorboard_graph_test
