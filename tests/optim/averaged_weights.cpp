#include "etude/optim/averaged_weights.hpp"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <algorithm>

#include "etude/base/error.hpp"
#include "etude/optim/create.hpp"
#include "etude/optim/optimizer.hpp"
#include "etude/optim/rules/sgd.hpp"

namespace optim_averaged_weights_test {

using etude::AveragedWeights;
using etude::NamedTensor;

struct NetImpl : torch::nn::Module {
  NetImpl() {
    first = register_module("first", torch::nn::Linear(3, 4));
    norm = register_module("norm", torch::nn::BatchNorm1d(4));
    second = register_module("second", torch::nn::Linear(4, 4));
    tied = register_parameter("tied", second->weight);
    first->bias.requires_grad_(false);
  }
  torch::Tensor forward(torch::Tensor x) { return second(norm(first(x))); }
  torch::nn::Linear first = nullptr, second = nullptr;
  torch::nn::BatchNorm1d norm = nullptr;
  torch::Tensor tied;
};
TORCH_MODULE(Net);

/// An optimizer with one group of all parameters, as in a training.
std::unique_ptr<etude::Optimizer> optimizer_of(const etude::Model& model) {
  return std::make_unique<etude::SGD>(
      std::vector<etude::ParameterGroup>{{model.named_parameters(), std::nullopt, std::nullopt}},
      etude::SGDOptions{.lr = .1});
}

void disturb(const etude::Model& model) {
  const torch::NoGradGuard no_grad;
  for (const auto& [name, tensor] : model.state_dict()) {
    torch::Tensor own = tensor;
    own.add_(tensor.is_floating_point() ? torch::rand_like(tensor) : torch::ones_like(tensor));
  }
}

/// The same average, computed by its formula for each tensor in double precision.
struct ByHand {
  std::vector<NamedTensor> averages;
  explicit ByHand(const etude::Model& model) {
    for (const auto& [name, tensor] : model.state_dict())
      averages.emplace_back(name, tensor.detach().to(torch::kDouble).clone());
  }
  void update(const etude::Model& model, double weight) {
    const auto now = model.state_dict();
    for (std::size_t i = 0; i < now.size(); ++i) {
      const auto value = now[i].second.detach().to(torch::kDouble);
      averages[i].second =
          now[i].second.is_floating_point() ? averages[i].second * (1 - weight) + value * weight : value;
    }
  }
};

void check_equal(const std::vector<NamedTensor>& found, const std::vector<NamedTensor>& expected) {
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    CAPTURE(found[i].first);
    CHECK(found[i].first == expected[i].first);
    CHECK(torch::allclose(found[i].second.detach().to(torch::kDouble), expected[i].second, 1e-5, 1e-6));
  }
}

TEST_CASE("every weight moves towards the model by its share, wherever it is stored") {
  const etude::Model model = Net();
  const auto optimizer = optimizer_of(model);
  AveragedWeights average(model, true);
  ByHand expected(model);
  for (const double weight : {.5, .1, 1., .25}) {
    disturb(model);
    average.update(*optimizer, weight);
    expected.update(model, weight);
    check_equal(average.model_state(), expected.averages);
  }
}

TEST_CASE("a weight that is unfrozen or leaves the optimizer's memory keeps its average") {
  const etude::Model model = Net();
  const auto optimizer = optimizer_of(model);
  AveragedWeights average(model, true);
  ByHand expected(model);
  const auto update = [&] {
    disturb(model);
    average.update(*optimizer, .3);
    expected.update(model, .3);
    check_equal(average.model_state(), expected.averages);
  };
  update();
  model.as<NetImpl>().first->bias.requires_grad_(true);
  update();
  for (auto& parameter : model.parameters()) parameter.set_data(parameter.detach().clone());
  update();
}

TEST_CASE("tied weights are once in its state, and under each name in the model's") {
  AveragedWeights average(etude::Model(Net()), false);
  const auto count = [](const auto& state, const std::string& name) {
    return std::ranges::count(state, name, &NamedTensor::first);
  };
  CHECK(count(average.state(), "tied") + count(average.state(), "second.weight") == 1);
  CHECK(count(average.model_state(), "tied") + count(average.model_state(), "second.weight") == 2);
}

TEST_CASE("without averaged buffers, the model's current ones are used") {
  const etude::Model model = Net();
  const auto optimizer = optimizer_of(model);
  AveragedWeights average(model, false);
  disturb(model);
  average.update(*optimizer, .5);
  const auto state = average.model_state();
  const auto mean = std::ranges::find(state, "norm.running_mean", &NamedTensor::first);
  REQUIRE(mean != state.end());
  CHECK(torch::equal(mean->second, model.as<NetImpl>().norm->running_mean));
}

TEST_CASE("an average of half-precision weights keeps moving") {
  Net net;
  net->to(torch::kBFloat16);
  const etude::Model model = net;
  const auto optimizer = optimizer_of(model);
  const torch::NoGradGuard no_grad;
  for (auto& parameter : model.parameters()) parameter.fill_(1);
  AveragedWeights average(model, false);
  for (auto& parameter : model.parameters()) parameter.fill_(2);
  for (int i = 0; i < 1000; ++i) average.update(*optimizer, .001);
  // 2 - .999^1000; in 16 bits, 1 + .001 is 1.
  const auto state = average.state();
  REQUIRE_FALSE(state.empty());
  for (const auto& [name, tensor] : state)
    CHECK(tensor.flatten()[0].item<double>() == doctest::Approx(1.6323).epsilon(1e-3));
  CHECK((average.model_state()[0].second.scalar_type() == torch::kBFloat16));
}

TEST_CASE("the averages are in the model exactly as long as the guard lives") {
  const etude::Model model = Net();
  const auto optimizer = optimizer_of(model);
  AveragedWeights average(model, true);
  const auto first = average.state()[0].second.clone();
  disturb(model);
  std::vector<torch::Tensor> before;
  for (const auto& [name, tensor] : model.state_dict()) before.push_back(tensor.detach().clone());
  try {
    const auto swap = average.swap_in();
    CHECK(torch::equal(model.parameters()[0], first));
    throw std::runtime_error("in between");
  } catch (const std::runtime_error&) {
  }
  const auto after = model.state_dict();
  REQUIRE(after.size() == 10);  // a tied tensor, and 9 of the layers
  for (std::size_t i = 0; i < after.size(); ++i) CHECK(torch::equal(after[i].second, before[i]));
}

TEST_CASE("a state that doesn't fit changes nothing, and is reported in full") {
  const etude::Model model = Net();
  AveragedWeights average(model, true);
  auto state = average.state();
  for (auto& [name, tensor] : state) tensor = tensor.clone().fill_(3);
  std::erase_if(state, [](const auto& named) { return named.first == "first.bias"; });
  for (auto& [name, tensor] : state)
    if (name == "norm.weight") tensor = torch::zeros({7});
  try {
    average.load(state);
    FAIL("it was taken");
  } catch (const etude::CheckpointError& error) {
    const std::string what = error.what();
    CHECK(what.find("first.bias is missing") != std::string::npos);
    CHECK(what.find("norm.weight must be") != std::string::npos);
  }
  check_equal(average.model_state(), ByHand(model).averages);
}

}  // namespace optim_averaged_weights_test
