#include "etude/model/modules.hpp"

#include <doctest/doctest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <string>
#include <vector>

#include "etude/base/error.hpp"

namespace model_modules_test {

using etude::Model;
using etude::Modules;
using torch::nn::Linear;

struct OtherImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) { return x * scale; }
  torch::Tensor scale = register_parameter("scale", torch::full({1}, 3.0));
};
TORCH_MODULE(Other);

torch::nn::Sequential with_norm() { return torch::nn::Sequential(Linear(2, 2), torch::nn::BatchNorm1d(2)); }

std::vector<std::string> names(const std::vector<etude::NamedTensor>& tensors) {
  std::vector<std::string> result;
  for (const auto& [name, tensor] : tensors) result.push_back(name);
  return result;
}

TEST_CASE("modules by name are one model, whose outputs are the first's") {
  Linear line(2, 1);
  const Model model = Modules{{"line", line}, {"other", Other()}};
  CHECK(names(model.state_dict()) == std::vector<std::string>{"line.weight", "line.bias", "other.scale"});
  const auto x = torch::ones({3, 2});
  CHECK(torch::equal(model.forward({x})[0], line->forward(x)));
  CHECK(&model.as<Linear>() == line.get());
  CHECK(&model.as<Linear>("line") == line.get());
  CHECK(model.as<Other>().scale.item<float>() == 3);
}

TEST_CASE("a module that is asked for by a type that several have must be named") {
  const Model model = Modules{{"first", Linear(2, 1)}, {"second", Linear(2, 1)}};
  CHECK_THROWS_WITH_AS(
      model.as<Linear>(),
      "the model has 2 modules of type torch::nn::LinearImpl, and 1 are asked for: take all of "
      "them, in their order, or one by its name, model.as<torch::nn::LinearImpl>(\"NAME\")",
      etude::ArgumentError);
  CHECK(&model.nth<torch::nn::LinearImpl>(1, 2) == &model.as<Linear>("second"));
  CHECK_THROWS_WITH_AS(model.as<Linear>("third"), "the model has no module 'third': it has first, second",
                       etude::ArgumentError);
  CHECK_THROWS_AS(model.as<Other>("first"), etude::ArgumentError);
  CHECK_THROWS_AS(model.as<Other>(), etude::ArgumentError);
  CHECK_THROWS_WITH_AS(Model(Other()).as<Other>("first"), doctest::Contains("has no modules by name"),
                       etude::ArgumentError);
}

TEST_CASE(
    "a frozen module gets no gradients, stays in evaluation mode, and is saved only if that is asked for") {
  auto teacher = with_norm();
  const Model model = Modules{{"student", Linear(2, 1)}, {"teacher", etude::frozen(teacher)}};
  for (const bool on : {true, false, true}) {
    model.train(on);
    CHECK_FALSE(teacher->is_training());
    CHECK_FALSE(teacher[1]->is_training());
    CHECK(model.as<Linear>("student").is_training() == on);
  }
  for (const auto& parameter : teacher->parameters()) CHECK_FALSE(parameter.requires_grad());
  CHECK(names(model.state_dict()) == std::vector<std::string>{"student.weight", "student.bias"});
  const Model saved = Modules{{"student", Linear(2, 1)}, {"teacher", etude::frozen(Other(), {.save = true})}};
  CHECK(names(saved.state_dict()).back() == "teacher.scale");
}

TEST_CASE("a frozen module that isn't saved follows the model to another dtype") {
  Other teacher;
  Modules modules{{"student", Linear(2, 1)}, {"teacher", etude::frozen(teacher)}};
  modules->to(torch::kDouble);
  CHECK(teacher->scale.dtype() == torch::kDouble);
  modules->to(torch::kCPU, torch::kFloat);
  CHECK(teacher->scale.dtype() == torch::kFloat);
}

TEST_CASE(
    "a target begins as a copy, and moves towards its source in parameters while its buffers are copied") {
  auto source = with_norm(), slow = with_norm();
  Modules modules{{"source", source}, {"slow", etude::target_of("source", slow, {.decay = 0.75})}};
  CHECK(modules->has_targets());
  const auto weight = [](const torch::nn::Sequential& net) { return net->named_parameters()["0.weight"]; };
  const auto before = weight(source).detach().clone();
  CHECK(torch::equal(weight(slow), before));
  {
    const torch::NoGradGuard no_grad;
    weight(source).add_(8);
    source->named_buffers()["1.running_mean"].fill_(5);
  }
  modules->move_targets(1);
  CHECK(torch::allclose(weight(slow), before + 2));
  CHECK(torch::equal(slow->named_buffers()["1.running_mean"], torch::full({2}, 5.0)));
  modules->move_targets(2);
  CHECK(torch::allclose(weight(slow), before + 3.5));
  CHECK_FALSE(weight(slow).requires_grad());
  CHECK_FALSE(slow->is_training());
}

struct TiedImpl : torch::nn::Module {
  explicit TiedImpl(bool is_tied) {
    if (is_tied)
      register_parameter("second", first);
    else
      register_parameter("second", torch::zeros({2}));
    register_parameter("third", torch::zeros({1}));
  }
  torch::Tensor first = register_parameter("first", torch::ones({2}));
};
TORCH_MODULE(Tied);

TEST_CASE("a target follows by name, whether or not it ties the parameters that its source ties") {
  for (const bool target_ties : {true, false}) {
    Tied source(true), target(target_ties);
    Modules modules{{"source", source}, {"target", etude::target_of("source", target, {.decay = 0.5})}};
    {
      const torch::NoGradGuard no_grad;
      source->first.fill_(3);
      source->named_parameters()["third"].fill_(8);
    }
    modules->move_targets(1);
    const auto moved = target->named_parameters();
    CHECK(torch::equal(moved["first"], torch::full({2}, 2.0)));
    CHECK(torch::equal(moved["second"], torch::full({2}, 2.0)));
    CHECK(moved["third"].item<float>() == 4);
  }
}

TEST_CASE("a target may be copied every so many steps") {
  Other source, target;
  Modules modules{{"source", source}, {"target", etude::target_of("source", target, {.every = 3})}};
  std::vector<float> seen;
  for (int step = 1; step <= 6; ++step) {
    const torch::NoGradGuard no_grad;
    source->scale.fill_(step);
    modules->move_targets(step);
    seen.push_back(target->scale.item<float>());
  }
  CHECK(seen == std::vector<float>{3, 3, 3, 3, 3, 6});
}

TEST_CASE("wrong modules are refused by name") {
  const auto fault = [](auto make) {
    try {
      make();
    } catch (const etude::Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const Other other;
  CHECK(fault([] { return Modules({}); }) == "Modules: there is no module; name at least one");
  CHECK(fault([] {
          return Modules{{"a.b", Other()}};
        }) == "Modules: the name 'a.b' must not be empty or have a dot");
  CHECK(fault([] {
          return Modules{{"a", Other()}, {"a", etude::frozen(Other())}};
        }) == "Modules: the name 'a' is given twice");
  CHECK(fault([] {
          return Modules{{"a", Other()}, {"b", etude::target_of("c", Other())}};
        }) == "Modules: b is a target of 'c', which must be the name of a module that is trained");
  CHECK(fault([&] {
          return Modules{{"a", other}, {"b", etude::target_of("a", other)}};
        }) == "Modules: b is the same module as its source a");
  CHECK(fault([] {
          return Modules{{"a", Other()}, {"b", etude::target_of("a", Other(), {.decay = 1})}};
        }) == "Modules: the decay of b is 1: must be in [0, 1)");
  CHECK(fault([] {
          return Modules{{"a", Other()}, {"b", etude::target_of("a", Other(), {.every = 0})}};
        }) == "Modules: every of b is 0: must be at least 1");
  CHECK(fault([] {
          return Modules{{"a", Other()}, {"b", etude::target_of("a", Linear(2, 1))}};
        }).find("scale") != std::string::npos);
}

}  // namespace model_modules_test
