#include "etude/model/model.hpp"
#include "etude/base/error.hpp"

#include <doctest/doctest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>

#include <boost/hana/define_struct.hpp>
#include <map>

#include "common/fault_of.hpp"

namespace model_model_test {

using etude::Model;
using etude::Tensors;
using toy::contains;
using toy::fault_of;
using Names = std::vector<std::string>;

Names names(const std::vector<etude::NamedTensor>& tensors) {
  Names result;
  for (const auto& [name, tensor] : tensors) result.push_back(name);
  return result;
}

torch::Tensor two() { return torch::full({1}, 2.0); }
torch::Tensor three() { return torch::full({1}, 3.0); }

struct NetImpl : torch::nn::Module {
  torch::nn::Linear first{register_module("first", torch::nn::Linear(2, 3))};
  torch::nn::BatchNorm1d norm{register_module("norm", torch::nn::BatchNorm1d(3))};
  torch::nn::Dropout dropout{register_module("dropout", torch::nn::Dropout(0.5))};
  torch::Tensor forward(torch::Tensor x) { return dropout(norm(first(x))); }
};
TORCH_MODULE(Net);

struct Several : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& a, const torch::Tensor& b,
                        torch::optional<torch::Tensor> c = {}) {
    return c.has_value() ? a + b + *c : a + b;
  }
};

TEST_CASE("a model can be a holder, a shared pointer, or a module whose forward is a template") {
  const Model holder = Net();
  CHECK(holder.forward(torch::zeros({4, 2}))[0].sizes() == torch::IntArrayRef({4, 3}));
  CHECK(contains(holder.name(), "Net"));
  const Model pointer = std::make_shared<NetImpl>();
  CHECK(pointer.accepts(1));
  CHECK_FALSE(pointer.accepts(0));
  CHECK_FALSE(pointer.accepts(2));
  CHECK_FALSE(pointer.takes_batch());
  const Model sequential = torch::nn::Sequential(torch::nn::Linear(2, 3), torch::nn::Linear(3, 5));
  CHECK(sequential.forward(torch::zeros({4, 2})).single().size(1) == 5);
  CHECK_FALSE(bool(Model()));
  CHECK(bool(holder));
}

TEST_CASE("a model reports how many tensors its forward takes, and takes only those") {
  const Model model = std::make_shared<Several>();
  CHECK(model.forward({two(), three()}).single().item<double>() == 5);
  CHECK(model.forward({two(), three(), three()}).single().item<double>() == 8);
  CHECK_FALSE(model.accepts(1));
  CHECK_FALSE(model.accepts(4));
  const auto text = fault_of<etude::DataError>([&] { model.forward(two()); });
  CHECK(contains(text, "Several"));
  CHECK(contains(text, "takes 2 or 3 tensors, not 1: float32 [1]"));
}

TEST_CASE("a forward that takes Tensors gets all of them with their names") {
  struct Whole : torch::nn::Module {
    torch::Tensor forward(const Tensors& inputs) { return inputs.at("x") - inputs.at("y"); }
  };
  const Model model = std::make_shared<Whole>();
  CHECK(model.forward(Tensors({two(), three()}, {"y", "x"})).single().item<double>() == 1);
  CHECK(model.accepts(5));
}

TEST_CASE("a forward that takes the batch sees the labels") {
  struct WithLabels : torch::nn::Module {
    std::map<std::string, torch::Tensor> forward(const etude::Batch& batch) {
      const torch::Tensor& x = batch.inputs;
      if (batch.labels.empty()) return {{"logits", x}};
      return {{"logits", x}, {"loss", (x - batch.labels.single()).sum()}};
    }
  };
  const Model model = std::make_shared<WithLabels>();
  CHECK(model.takes_batch());
  const auto output = model.forward(etude::Batch{three(), two(), 1});
  CHECK(output.at("loss").item<double>() == 1);
  CHECK(model.forward(three()).names() == Names{"logits"});
  // Models without such a forward get the batch's inputs.
  CHECK(Model(std::make_shared<Several>())
            .forward(etude::Batch{{two(), three()}, two(), 1})
            .single()
            .item<double>() == 5);
}

struct Output {
  BOOST_HANA_DEFINE_STRUCT(Output, (torch::Tensor, logits), (torch::Tensor, hidden));
};

TEST_CASE("outputs keep their names and order") {
  struct Named : torch::nn::Module {
    Output forward(const torch::Tensor& x) { return {x, x * 2}; }
  };
  CHECK(Model(std::make_shared<Named>()).forward(two()).names() == Names{"logits", "hidden"});
  const Model lstm = torch::nn::LSTM(2, 3);
  CHECK(lstm.forward(torch::zeros({5, 4, 2})).size() == 3);
}

TEST_CASE("a module without forward is a model whose parts are used, and forward says that it has none") {
  struct PartsImpl : torch::nn::Module {
    torch::nn::Linear left{register_module("left", torch::nn::Linear(2, 3))};
  };
  struct FinalParts final : torch::nn::Module {};
  const Model model = std::make_shared<PartsImpl>();
  CHECK_FALSE(model.has_forward());
  CHECK_FALSE(model.accepts(1));
  CHECK(names(model.named_parameters()) == Names{"left.weight", "left.bias"});
  CHECK(model.as<PartsImpl>().left->forward(torch::zeros({4, 2})).size(1) == 3);
  CHECK_FALSE(Model(std::make_shared<FinalParts>()).has_forward());
  const auto text = fault_of<etude::ArgumentError>([&] { model.forward(torch::zeros({4, 2})); });
  CHECK(contains(text, "PartsImpl has no forward, which is needed here"));

  torch::jit::Module script("Parts");
  script.register_parameter("weight", torch::ones({2}), /*is_buffer=*/false);
  CHECK_FALSE(Model(script).has_forward());
  CHECK(contains(fault_of<etude::ArgumentError>([&] { Model(script).forward(two()); }),
                 "Parts has no forward"));
  CHECK(Model(Net()).has_forward());
}

TEST_CASE("null models are refused") {
  CHECK_THROWS_AS(Model(std::shared_ptr<NetImpl>()), etude::ArgumentError);
  CHECK_THROWS_AS(Model(Net(nullptr)), etude::ArgumentError);
}

TEST_CASE("parameters are listed once, state under every name") {
  struct Tied : torch::nn::Module {
    Tied() {
      auto weight = register_parameter("weight", torch::ones({2}));
      register_parameter("copy", weight);
      register_buffer("steps", torch::zeros({1}));
    }
    torch::Tensor forward(const torch::Tensor& x) { return x; }
  };
  const Model model = std::make_shared<Tied>();
  CHECK(names(model.named_parameters()) == Names{"weight"});
  CHECK(model.parameters().size() == 1);
  CHECK(names(model.named_buffers()) == Names{"steps"});
  CHECK(names(model.state_dict()) == Names{"weight", "copy", "steps"});
  CHECK(names(Model(Net()).state_dict()) == Names{"first.weight", "first.bias", "norm.weight", "norm.bias",
                                                  "norm.running_mean", "norm.running_var",
                                                  "norm.num_batches_tracked"});
}

TEST_CASE("loading copies into the existing tensors") {
  const Model from = Net(), into = Net();
  const auto before = into.state_dict();
  std::vector<void*> addresses;
  for (const auto& [name, tensor] : before) addresses.push_back(tensor.data_ptr());
  into.load_state_dict(from.state_dict());
  const auto source = from.state_dict();
  for (std::size_t i = 0; i < before.size(); ++i) {
    CHECK(into.state_dict()[i].second.data_ptr() == addresses[i]);
    CHECK(before[i].second.equal(source[i].second));
  }
  CHECK(into.named_parameters()[0].second.requires_grad());
}

TEST_CASE("a state that doesn't fit is refused as a whole, with every error named") {
  const Model model = Net();
  auto state = Model(Net()).state_dict();
  for (auto& [name, tensor] : state) tensor = tensor.detach().clone();
  state[0].second.fill_(7);
  state.erase(state.begin() + 2);       // norm.weight
  state[1].second = torch::zeros({4});  // first.bias
  state.emplace_back("other", torch::zeros({1}));
  state.emplace_back(state[0]);
  const auto text = fault_of<etude::CheckpointError>([&] { model.load_state_dict(state); });
  CHECK(contains(text, "norm.weight is missing"));
  CHECK(contains(text, "first.bias must be float32 [3], not float32 [4]"));
  CHECK(contains(text, "other is not in the model"));
  CHECK(contains(text, "first.weight is given twice"));
  CHECK_FALSE(model.state_dict()[0].second.eq(7).any().item<bool>());
  // A shape that torch would broadcast counts as different too.
  auto scalar = Model(Net()).state_dict();
  scalar[1].second = torch::zeros({});
  CHECK_THROWS_AS(model.load_state_dict(scalar), etude::CheckpointError);
}

TEST_CASE("the evaluation guard restores every submodule's mode") {
  Net net;
  net->norm->eval();  // as users do to freeze it
  const Model model = net;
  {
    const auto guard = model.eval_guard();
    CHECK_FALSE(model.is_training());
    CHECK_FALSE(net->dropout->is_training());
    const auto inner = model.eval_guard();
  }
  CHECK(model.is_training());
  CHECK(net->dropout->is_training());
  CHECK_FALSE(net->norm->is_training());
  try {
    const auto guard = model.eval_guard();
    throw std::runtime_error("in evaluation");
  } catch (const std::runtime_error&) {
  }
  CHECK(model.is_training());
}

TEST_CASE("the module is returned as its own type") {
  Net net;
  const Model model = net;
  CHECK(&model.as<NetImpl>() == net.get());
  CHECK(&model.as<Net>() == net.get());
  CHECK(&model.as<torch::nn::Module>() == net.get());
  CHECK(model.module() == net.ptr());
  const auto text = fault_of<etude::ArgumentError>([&] { model.as<Several>(); });
  CHECK(contains(text, "Net"));
  CHECK(contains(text, "Several"));
  CHECK_THROWS_AS(model.as<torch::jit::Module>(), etude::ArgumentError);
}

torch::jit::Module script() {
  torch::jit::Module module("Script");
  module.register_parameter("weight", torch::full({2}, 3.0), false);
  module.register_buffer("offset", torch::ones({2}));
  module.register_attribute("training", c10::BoolType::get(), true);
  torch::jit::Module child("Child");
  child.register_attribute("training", c10::BoolType::get(), false);
  module.register_module("child", child);
  module.define(
      "def forward(self, x, y: Optional[Tensor] = None):\n"
      "  if y is not None:\n"
      "    return x * self.weight + y, x\n"
      "  return x * self.weight + self.offset, x\n");
  return module;
}

TEST_CASE("a TorchScript module is a model") {
  const Model model = script();
  CHECK(contains(model.name(), "Script"));
  CHECK(model.accepts(1));
  CHECK(model.accepts(2));
  CHECK_FALSE(model.accepts(3));
  CHECK(model.forward(torch::full({2}, 2.0))[0].sum().item<double>() == 14);
  CHECK(model.forward({torch::full({2}, 2.0), torch::full({2}, 4.0)})[0].sum().item<double>() == 20);
  CHECK_THROWS_AS(model.forward(Tensors()), etude::DataError);
  CHECK(names(model.state_dict()) == Names{"weight", "offset"});
  CHECK(model.module() == nullptr);
  model.load_state_dict({{"weight", torch::full({2}, 5.0)}, {"offset", torch::zeros({2})}});
  CHECK(model.forward(torch::full({2}, 2.0))[0].sum().item<double>() == 20);

  auto& module = model.as<torch::jit::Module>();
  const auto child_training = [&] { return module.attr("child").toModule().is_training(); };
  {
    const auto guard = model.eval_guard();
    CHECK_FALSE(model.is_training());
  }
  CHECK(model.is_training());
  CHECK_FALSE(child_training());
}

TEST_CASE("a TorchScript model learns") {
  const Model model = script();
  model.parameters()[0].set_requires_grad(true);
  model.forward(torch::full({2}, 2.0))[0].sum().backward();
  CHECK(model.parameters()[0].grad().sum().item<double>() == 4);
}

}  // namespace model_model_test
