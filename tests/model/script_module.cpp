#include "etude/model/script_module.hpp"

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "common/folder.hpp"
#include "common/toy.hpp"
#include "etude/base/error.hpp"
#include "etude/checkpoint/load_weights.hpp"
#include "etude/model/equal.hpp"

namespace model_script_module_test {

using Names = std::vector<std::string>;

/// y = x * weight + shift.offset, and twice that in training mode; counts its calls.
torch::jit::Module script() {
  torch::jit::Module shift("Shift"), root("Body");
  shift.register_parameter("offset", torch::full({1}, 3.0), false);
  shift.register_attribute("training", c10::BoolType::get(), true);
  shift.define(
      "def forward(self, x):\n  if self.training:\n    return 2 * (x + self.offset)\n  return x + "
      "self.offset\n");
  root.register_parameter("weight", torch::full({1}, 2.0), false);
  root.register_buffer("calls", torch::zeros({1}));
  root.register_attribute("training", c10::BoolType::get(), true);
  root.register_module("shift", shift);
  root.define("def forward(self, x):\n  self.calls.add_(1)\n  return self.shift.forward(x * self.weight)\n");
  return root;
}

struct NetImpl : torch::nn::Module {
  explicit NetImpl(torch::jit::Module body)
      : backbone(register_module("backbone", etude::ScriptModule(body))) {}
  torch::Tensor forward(torch::Tensor x) { return head(backbone(x)); }
  etude::ScriptModule backbone;
  torch::nn::Linear head = register_module("head", torch::nn::Linear(1, 1));
};
TORCH_MODULE(Net);

Names names(const std::vector<etude::NamedTensor>& state) {
  Names result;
  for (const auto& [name, tensor] : state) result.push_back(name);
  return result;
}

TEST_CASE("the tensors of a TorchScript backbone are those of the module around it, by their own names") {
  const auto body = script();
  Net net(body);
  CHECK(names(etude::state_dict(*net)) ==
        Names{"backbone.weight", "backbone.shift.offset", "head.weight", "head.bias", "backbone.calls"});
  CHECK(net->named_parameters()["backbone.weight"].is_same(body.attr("weight").toTensor()));
  CHECK(net->backbone->name() == "Body");
  net->to(torch::kDouble);
  CHECK((body.attr("weight").toTensor().scalar_type() == torch::kDouble));
}

TEST_CASE("each module of a backbone follows the mode of the whole, and keeps its own after an evaluation") {
  Net net(script());
  const auto x = torch::ones({1, 1});
  const auto body = [&] { return net->backbone->forward(x).single().item<float>(); };
  CHECK(body() == 10);
  net->eval();
  CHECK(body() == 5);
  net->train();
  CHECK(body() == 10);
  net->backbone->children()[0]->eval();
  CHECK(body() == 5);
  const etude::Model model(net);
  {
    const auto guard = model.eval_guard();
    CHECK(body() == 5);
  }
  CHECK(net->backbone->script().is_training());
  CHECK(body() == 5);
  auto saved = script();
  saved.eval();
  CHECK_FALSE(etude::ScriptModule(saved)->is_training());
}

TEST_CASE("a partly frozen backbone trains, and is saved for a module with the same parts") {
  const toy::Folder folder;
  auto options = toy::options(toy::arguments(), 4);
  Net net(script());
  options.model = net;
  options.parameter_groups = {{"backbone", {.frozen = true}}, {"backbone.shift", {.frozen = false}}};
  etude::Trainer trainer(options);
  trainer.train();
  trainer.save_model(folder / "model");
  CHECK(net->backbone->script().attr("weight").toTensor().item<float>() == 2);
  CHECK(net->named_parameters()["backbone.shift.offset"].item<float>() != 3);
  CHECK(net->backbone->script().attr("calls").toTensor().item<float>() == 4);
  Net other(script());
  CHECK_FALSE(etude::equal(*net, *other));
  etude::load_weights(*other, folder / "model", {.strict = true});
  CHECK(etude::equal(*net, *other).difference == "");
}

TEST_CASE("a TorchScript module without a forward is refused") {
  CHECK_THROWS_WITH_AS(etude::ScriptModule(torch::jit::Module("Empty")),
                       "the TorchScript module Empty has no forward", etude::ArgumentError);
}

}  // namespace model_script_module_test
