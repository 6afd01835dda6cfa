#include "etude/optim/one_pass.hpp"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "etude/optim/optimizers.hpp"

namespace optim_one_pass_test {

using Maker = std::function<std::unique_ptr<etude::Optimizer>(const torch::Tensor&)>;

template <class Optimizer, class Options>
Maker maker(Options options) {
  return [=](const torch::Tensor& parameter) {
    return std::make_unique<Optimizer>(std::vector<etude::ParameterGroup>{{{{"p", parameter}}, {}, {}}},
                                       options);
  };
}

/// The parameter after three steps; the gradients need clipping in the first steps, but not in the last.
torch::Tensor after_three_steps(const Maker& make, torch::ScalarType type, std::int64_t size, bool in_step) {
  torch::manual_seed(3);
  const auto parameter = torch::randn({size}, type).set_requires_grad(true);
  const auto optimizer = make(parameter);
  for (const double length : {5., 2., 0.5}) {
    optimizer->zero_grad();
    const auto gradient = torch::randn({size}, type);
    parameter.mutable_grad() = gradient / gradient.norm() * length;
    const auto norm = in_step ? optimizer->clip_grad_norm_in_step(1) : optimizer->clip_grad_norm(1);
    CHECK(norm.item<double>() == doctest::Approx(length).epsilon(1e-5));
    optimizer->step();
  }
  return parameter.detach();
}

TEST_CASE("clipping inside the step equals clipping before it, for every kernel of every optimizer") {
  const std::vector<std::pair<std::string, Maker>> makers{
      {"AdamW", maker<etude::AdamW>(etude::AdamWOptions{.weight_decay = 0.1})},
      {"AdamW, amsgrad", maker<etude::AdamW>(etude::AdamWOptions{.amsgrad = true})},
      {"AdamW by operators", maker<etude::AdamW>(etude::AdamWOptions{.fused = false})},
      {"AdamW8bit", maker<etude::AdamW8bit>(etude::AdamW8bitOptions{})},
      {"Lion8bit", maker<etude::Lion8bit>(etude::Lion8bitOptions{.lr = 0.1})},
      {"Adam", maker<etude::Adam>(etude::AdamOptions{.weight_decay = 0.1})},
      {"SGD", maker<etude::SGD>(etude::SGDOptions{.lr = 0.1})},
      {"SGD, momentum", maker<etude::SGD>(etude::SGDOptions{.lr = 0.1, .momentum = 0.9, .nesterov = true})},
      {"SGD by operators", maker<etude::SGD>(etude::SGDOptions{.lr = 0.1, .fused = false})},
      {"Adagrad", maker<etude::Adagrad>(etude::AdagradOptions{.lr = 0.1})},
      {"Adagrad by operators", maker<etude::Adagrad>(etude::AdagradOptions{.lr = 0.1, .fused = false})},
      {"RMSprop", maker<etude::RMSprop>(etude::RMSpropOptions{.momentum = 0.9, .centered = true})},
      {"Lion", maker<etude::Lion>(etude::LionOptions{.lr = 0.1})},
      {"NAdam", maker<etude::NAdam>(etude::NAdamOptions{.weight_decay = 0.1})},
      {"RAdam", maker<etude::RAdam>(etude::RAdamOptions{.weight_decay = 0.1})},
      {"Adamax", maker<etude::Adamax>(etude::AdamaxOptions{.weight_decay = 0.1})},
      {"Adadelta", maker<etude::Adadelta>(etude::AdadeltaOptions{.weight_decay = 0.1})},
      {"ASGD", maker<etude::ASGD>(etude::ASGDOptions{.lr = 0.1, .weight_decay = 0.1})},
      {"Rprop", maker<etude::Rprop>(etude::RpropOptions{})},
      {"AdEMAMix", maker<etude::AdEMAMix>(etude::AdEMAMixOptions{.weight_decay = 0.1})}};
  for (const auto& named : makers)
    for (const auto type : {torch::kFloat, torch::kDouble})
      for (const std::int64_t size : {37, 40'000}) {  // for Etude's kernel, and for LibTorch's if it has one
        const auto& make = named.second;
        CAPTURE(named.first);
        CAPTURE(size);
        const auto at_once = after_three_steps(make, type, size, true),
                   before = after_three_steps(make, type, size, false);
        CHECK(torch::allclose(at_once, before, 1e-5, 1e-6));
      }
}

TEST_CASE("a long vector gives the same result as the short ones that it consists of") {
  const std::vector<Maker> makers{
      maker<etude::AdamW>(etude::AdamWOptions{}),
      maker<etude::Adam>(etude::AdamOptions{.weight_decay = 0.1, .amsgrad = true}),
      maker<etude::SGD>(etude::SGDOptions{.lr = 0.1, .momentum = 0.9, .dampening = 0.3}),
      maker<etude::Adagrad>(etude::AdagradOptions{.lr = 0.1, .lr_decay = 0.1}),
      maker<etude::NAdam>(etude::NAdamOptions{}),
      maker<etude::Rprop>(etude::RpropOptions{}),
      maker<etude::AdEMAMix>(etude::AdEMAMixOptions{}),
  };
  const auto start = torch::randn({40'000}), gradients = torch::randn({3, 40'000});
  for (std::size_t i = 0; i < makers.size(); ++i) {
    CAPTURE(i);
    const auto train = [&](torch::Tensor parameter, const torch::Tensor& own) {
      parameter = parameter.clone().set_requires_grad(true);
      const auto optimizer = makers[i](parameter);
      for (int step = 0; step < 3; ++step) {
        optimizer->zero_grad();
        parameter.mutable_grad() = own[step].clone();
        optimizer->step();
      }
      return parameter.detach();
    };
    std::vector<torch::Tensor> parts;
    for (std::int64_t from = 0; from < 40'000; from += 8'000)
      parts.push_back(train(start.narrow(0, from, 8'000), gradients.narrow(1, from, 8'000)));
    CHECK(torch::allclose(train(start, gradients), torch::cat(parts), 1e-5, 1e-6));
  }
}

TEST_CASE("moments of bfloat16 are left to operators unless their rounding is given") {
  const auto values = torch::ones({8}, torch::kBFloat16), gradients = torch::ones_like(values);
  const std::vector<torch::Tensor> moments{torch::zeros_like(values)};
  const auto update = [](auto& value, auto gradient, auto& sum) {
    sum = sum + gradient;
    value = value - sum;
  };
  CHECK_FALSE(etude::detail::one_pass<1>(values, gradients, moments, update));
  CHECK(torch::equal(values, gradients));
  CHECK(etude::detail::one_pass<1>(values, gradients, moments, update, etude::detail::Bfloat16Rounding()));
  CHECK(torch::equal(values, torch::zeros_like(values)));
  CHECK(torch::equal(moments[0], gradients));
}

TEST_CASE("functions of lanes equal those of scalars, NaN included") {
  const std::vector<float> a{4, -2, NAN, -0.F}, b{9, 3, 1, NAN};
  std::vector<float> root(4), largest(4), smallest(4), signs(4), magnitudes(4), negative(4), chosen(4);
  const auto x = etude::detail::Lanes<float>::load(a.data()), y = etude::detail::Lanes<float>::load(b.data());
  sqrt(x).store(root.data());
  max(x, y).store(largest.data());
  min(x, y).store(smallest.data());
  sign(x).store(signs.data());
  abs(x).store(magnitudes.data());
  (-x).store(negative.data());
  if_positive(x, y, 5).store(chosen.data());
  CHECK(root[0] == 2);
  CHECK(std::isnan(root[1]));
  CHECK(std::isnan(root[2]));
  CHECK(root[3] == 0);
  CHECK(largest[0] == 9);
  CHECK(largest[1] == 3);
  CHECK(std::isnan(largest[2]));
  CHECK(std::isnan(largest[3]));
  CHECK(smallest[0] == 4);
  CHECK(smallest[1] == -2);
  CHECK(std::isnan(smallest[2]));
  CHECK(std::isnan(smallest[3]));
  CHECK(signs == std::vector<float>{1, -1, 0, 0});
  CHECK(magnitudes[0] == 4);
  CHECK(magnitudes[1] == 2);
  CHECK(std::isnan(magnitudes[2]));
  CHECK(!std::signbit(magnitudes[3]));
  CHECK(negative[0] == -4);
  CHECK(negative[1] == 2);
  CHECK(std::isnan(negative[2]));
  CHECK(!std::signbit(negative[3]));
  CHECK(chosen == std::vector<float>{9, 5, 5, 5});
}

TEST_CASE("the sum of squares counts every element of a vector of any length") {
  for (const std::int64_t size : {0, 1, 15, 16, 17, 4095, 4096, 4113, 100'000}) {
    CAPTURE(size);
    const auto values = torch::arange(size).to(torch::kDouble).remainder(7).sub(3);
    const double expected = values.square().sum().item<double>();  // small whole numbers: exact
    CHECK(etude::detail::sum_of_squares(size, values.data_ptr<double>()) == expected);
    const auto single = values.to(torch::kFloat);
    CHECK(etude::detail::sum_of_squares(size, single.data_ptr<float>()) == expected);
  }
}

TEST_CASE("the norm of ten million small numbers is precise") {
  const auto values = torch::full({10'000'000}, 1e-3);
  CHECK(std::sqrt(etude::detail::sum_of_squares(10'000'000, values.data_ptr<float>())) ==
        doctest::Approx(std::sqrt(10.)).epsilon(5e-6));
}

}  // namespace optim_one_pass_test
