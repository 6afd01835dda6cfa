#include <doctest/doctest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/instancenorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include "etude/optim/parameter_groups.hpp"

namespace optim_parameter_groups_test {

std::vector<std::string> names(const etude::ParameterGroup& group) {
  std::vector<std::string> result;
  for (const auto& [name, tensor] : group.parameters) result.push_back(name);
  return result;
}

using Names = std::vector<std::string>;

struct RootMeanImpl : torch::nn::Module {
  RootMeanImpl() { scale = register_parameter("scale", torch::ones({3})); }
  torch::Tensor scale;
};
struct MyRMSNormImpl : RootMeanImpl {};
struct NormalizingFlowImpl : RootMeanImpl {};

struct NetImpl : torch::nn::Module {
  NetImpl() {
    register_module("embed", linear);
    register_module("tied", tied);
    register_module("a", torch::nn::LayerNorm(torch::nn::LayerNormOptions({3})));
    register_module("b", torch::nn::BatchNorm2d(3));
    register_module("c", torch::nn::GroupNorm(torch::nn::GroupNormOptions(1, 3)));
    register_module("d", torch::nn::InstanceNorm1d(torch::nn::InstanceNorm1dOptions(3).affine(true)));
    register_module("e", std::make_shared<MyRMSNormImpl>());
    register_module("f", std::make_shared<NormalizingFlowImpl>());
    register_module("final_norm", std::make_shared<RootMeanImpl>());
    tied->weight = tied->register_parameter("weight2", linear->weight);
  }
  torch::nn::Linear linear{3, 3}, tied{3, 3};
};

TEST_CASE("weight decay skips biases and normalisations by their names") {
  for (const char* name :
       {"fc.weight", "normal.weight", "encoder.norms.weight", "enorm.weight", "prenorm", "0.weight"}) {
    CAPTURE(name);
    CHECK(etude::decays_by_name(name));
  }
  for (const char* name : {"fc.bias", "BIAS", "fc.bias_ih", "LayerNorm.weight", "x.rmsnorm.w", "norm.weight",
                           "norm", "a.norm", "a.Norm.weight", "final_norm.weight", "pre_norm"}) {
    CAPTURE(name);
    CHECK_FALSE(etude::decays_by_name(name));
  }
}

TEST_CASE("plain lists are split by name, in order") {
  const torch::Tensor t = torch::zeros({1});
  const auto groups =
      etude::parameter_groups({{"a.weight", t.clone()}, {"a.bias", t.clone()}, {"b.weight", t.clone()}}, 0.1);
  REQUIRE(groups.size() == 2);
  CHECK(names(groups[0]) == Names{"a.weight", "b.weight"});
  CHECK(names(groups[1]) == Names{"a.bias"});
  CHECK(groups[0].weight_decay == 0.1);
  CHECK(groups[1].weight_decay == 0.0);
  CHECK_FALSE(groups[0].lr.has_value());
}

TEST_CASE("a module's normalisations are found by their types, and tied parameters are listed once") {
  const NetImpl net;
  const auto groups = etude::parameter_groups(net, 0.1);
  CHECK(names(groups[0]) == Names{"embed.weight", "tied.weight", "f.scale"});
  CHECK(names(groups[1]) == Names{"embed.bias", "tied.bias", "a.weight", "a.bias", "b.weight", "b.bias",
                                  "c.weight", "c.bias", "d.weight", "d.bias", "e.scale", "final_norm.scale"});
}

TEST_CASE("there are always two groups, even if one is empty") {
  CHECK(etude::parameter_groups(etude::NamedTensors{}, 0.0).size() == 2);
}

}  // namespace optim_parameter_groups_test
