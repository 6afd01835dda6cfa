#include "etude/model/units.hpp"

#include <doctest/doctest.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <string>
#include <vector>

#include "etude/base/error.hpp"

namespace model_units_test {

using etude::Tensors;
using Names = std::vector<std::string>;

struct BlockImpl : torch::nn::Module {
  torch::nn::Linear linear{register_module("linear", torch::nn::Linear(3, 3))};
  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& mask) { return linear(x) * mask; }
};
TORCH_MODULE(Block);

struct NetImpl : torch::nn::Module {
  NetImpl() {
    blocks->push_back(Block());
    blocks->push_back(Block());
    last->push_back(torch::nn::Linear(3, 1));
  }
  torch::nn::Linear first{register_module("first", torch::nn::Linear(2, 3))};
  etude::Units<Block> blocks{register_module("blocks", etude::Units<Block>())};
  etude::Units<torch::nn::Linear> last{register_module("last", etude::Units<torch::nn::Linear>())};
  torch::Tensor forward(const torch::Tensor& input) {
    auto x = first(input);
    for (const auto& block : *blocks) x = block(x, torch::ones_like(x));
    return (*last)[0](x);
  }
};
TORCH_MODULE(Net);

struct OuterImpl : torch::nn::Module {
  OuterImpl() { nets->push_back(Net()); }
  etude::Units<Net> nets{register_module("nets", etude::Units<Net>())};
  torch::Tensor forward(const torch::Tensor& x) { return (*nets)[0](x); }
};
TORCH_MODULE(Outer);

struct HoldsImpl : torch::nn::Module {
  explicit HoldsImpl(const etude::Units<torch::nn::Linear>& given)
      : layers(register_module("layers", given)) {}
  etude::Units<torch::nn::Linear> layers;
  torch::Tensor forward(const torch::Tensor& x) { return (*layers)[0](x); }
};
TORCH_MODULE(Holds);

Names names(const std::vector<etude::NamedModule>& units) {
  Names result;
  for (const auto& unit : units) result.push_back(unit.name);
  return result;
}

/// Runs each unit twice, and records its calls.
struct Twice final : etude::UnitRunner {
  torch::Tensor run(std::size_t unit, const Forward& forward, const Tensors& inputs) override {
    units.push_back(unit);
    counts.push_back(inputs.size());
    CHECK(torch::equal(forward(inputs), forward(inputs)));
    return forward(inputs);
  }
  std::vector<std::size_t> units, counts;
};

TEST_CASE("the units of a Sequential are its children, and those of another model stand in Units") {
  torch::nn::Sequential sequential(torch::nn::Linear(2, 3), torch::nn::Linear(3, 1));
  CHECK(names(etude::units(sequential)) == Names{"0", "1"});
  CHECK(etude::units(sequential)[1].module == sequential->ptr(1));

  Net net;
  CHECK(names(etude::units(net)) == Names{"blocks.0", "blocks.1", "last.0"});
  CHECK(etude::units(net)[1].module == (*net->blocks)[1].ptr());
  CHECK(net->named_parameters().contains("blocks.1.linear.weight"));
}

TEST_CASE("units within a unit belong to it, and a module that stands there twice is listed once") {
  CHECK(names(etude::units(Outer())) == Names{"nets.0"});
  torch::nn::Sequential nested(torch::nn::Linear(2, 2), Net());
  CHECK(names(etude::units(nested)) == Names{"0", "1"});

  torch::nn::Linear tied(3, 3);
  torch::nn::Sequential twice(tied, torch::nn::Linear(3, 3), tied);
  CHECK(names(etude::units(twice)) == Names{"0", "1"});
  Twice runner;
  const auto guard = etude::run_units(twice, runner);
  twice->forward(torch::ones({1, 3}));
  CHECK(runner.units == std::vector<std::size_t>{0, 1, 0});
}

TEST_CASE("a runner gets each call of a unit as a function of its inputs, while its guard lives") {
  const auto x = torch::ones({4, 2});
  Net net;
  const auto expected = net(x);
  Twice runner;
  {
    const auto guard = etude::run_units(net, runner);
    CHECK(torch::equal(net(x), expected));
    CHECK(runner.units == std::vector<std::size_t>{0, 1, 2});
    CHECK(runner.counts == std::vector<std::size_t>{2, 2, 1});
    CHECK_THROWS_AS(static_cast<void>(etude::run_units(net, runner)), etude::Error);
  }
  CHECK(torch::equal(net(x), expected));
  CHECK(runner.units.size() == 3);
}

TEST_CASE("a Sequential has its own children again after its runner's guard") {
  const auto x = torch::ones({4, 2});
  torch::nn::Sequential net(torch::nn::Linear(2, 3), torch::nn::Linear(3, 1));
  const auto expected = net->forward(x);
  const auto names_before = net->named_parameters().keys();
  Twice runner;
  {
    const auto guard = etude::run_units(net, runner);
    CHECK(torch::equal(etude::Model(net).forward(Tensors{x})[0], expected));
    CHECK(runner.units == std::vector<std::size_t>{0, 1});
    CHECK(net->named_parameters().keys() == names_before);
    CHECK_THROWS_WITH_AS(static_cast<void>(etude::run_units(net, runner)),
                         "the units of torch::nn::SequentialImpl are already run in another way",
                         etude::Error);
  }
  CHECK(torch::equal(net->forward(x), expected));
  CHECK(runner.units.size() == 2);
  CHECK(&net->at<torch::nn::LinearImpl>(1) == net->children()[1].get());
}

TEST_CASE("a clone of Units has modules of its own and no runner") {
  const auto x = torch::ones({1, 3});
  auto net = std::make_shared<etude::UnitsImpl<torch::nn::LinearImpl>>();
  net->push_back(torch::nn::Linear(3, 3));
  Twice runner;
  const auto guard = etude::run_units(Holds(net), runner);
  const auto copy = std::dynamic_pointer_cast<etude::UnitsImpl<torch::nn::LinearImpl>>(net->clone());
  REQUIRE(copy->size() == 1);
  CHECK((*copy)[0].ptr() != (*net)[0].ptr());
  CHECK(torch::equal((*copy)[0](x), (*net)[0](x)));
  CHECK(runner.units.size() == 1);
}

TEST_CASE("a model without units is refused by name, as is TorchScript") {
  CHECK_THROWS_WITH_AS(
      etude::units(torch::nn::Linear(2, 3)),
      "model: torch::nn::LinearImpl has no units: must be a torch::nn::Sequential with layers, or hold its "
      "layers in etude::Units",
      etude::ArgumentError);
  CHECK_THROWS_AS(etude::units(torch::nn::Sequential()), etude::ArgumentError);
  torch::jit::Module script("Scripted");
  script.define("def forward(self, x):\n  return x\n");
  CHECK_THROWS_WITH_AS(etude::units(script),
                       "model: Scripted is TorchScript, which has no units: must be a torch::nn module",
                       etude::ArgumentError);
}

}  // namespace model_units_test
