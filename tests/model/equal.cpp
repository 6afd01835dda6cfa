#include "etude/model/equal.hpp"

#include <doctest/doctest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include <limits>

namespace model_equal_test {

using State = std::vector<etude::NamedTensor>;

TEST_CASE("tensors are equal if all their bits are, wherever and however they lie in memory") {
  const auto x = torch::arange(6).to(torch::kFloat).reshape({2, 3});
  CHECK(etude::equal(x, x.t().contiguous().t()));
  CHECK(etude::equal(torch::Tensor(), torch::Tensor()));
  CHECK(etude::equal(torch::zeros({0, 2}), torch::ones({0, 2})));
  const auto nan = torch::full({}, std::numeric_limits<double>::quiet_NaN());
  CHECK(etude::equal(nan, nan.clone()));
  CHECK_FALSE(etude::equal(torch::zeros({1}), -torch::zeros({1})));
}

TEST_CASE("the first difference of two tensors is said") {
  const auto x = torch::arange(6).to(torch::kFloat).reshape({2, 3});
  auto y = x.clone();
  y[1][0] = 3.0000002;
  CHECK(etude::equal(x, y).difference == "element [1, 0] is 3 and 3.0000002");
  CHECK(etude::equal(x, x.to(torch::kDouble)).difference == "float32 [2, 3] and float64 [2, 3]");
  CHECK(etude::equal(x, x.flatten()).difference == "float32 [2, 3] and float32 [6]");
  CHECK(etude::equal(torch::tensor({1, 2}), torch::tensor({1, 3})).difference == "element [1] is 2 and 3");
  CHECK(etude::equal(x, torch::Tensor()).difference == "one is defined and the other undefined");
}

TEST_CASE("states are compared by name, and lists of tensors in order") {
  const auto one = torch::ones({1}), two = torch::full({1}, 2.0);
  CHECK(etude::equal(State{{"a", one}, {"b", two}}, State{{"b", two}, {"a", one}}));
  CHECK(etude::equal(State{{"a", one}}, State{{"a", two}}).difference == "a: element [0] is 1 and 2");
  CHECK(etude::equal(State{{"a", one}}, State{}).difference == "a is only in the first");
  CHECK(etude::equal(State{}, State{{"a", one}}).difference == "a is only in the second");
  CHECK(etude::equal(etude::Tensors(one, two), etude::Tensors(one, one)).difference ==
        "tensor 1: element [0] is 2 and 1");
  CHECK_FALSE(etude::equal(etude::Tensors(one, two), etude::Tensors(one)));
}

TEST_CASE("modules are compared with their buffers") {
  torch::nn::BatchNorm1d a(2), b(2);
  CHECK(etude::equal(*a, *b));
  CHECK(etude::equal(etude::Model(a), etude::Model(b)));
  b->running_mean.fill_(1);
  CHECK(etude::equal(*a, *b).difference == "running_mean: element [0] is 0 and 1");
}

}  // namespace model_equal_test
