#include <doctest/doctest.h>
#include <torch/types.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/optim/cpu_kernels.hpp"
#include "etude/optim/rule_optimizer.hpp"
#include "etude/reflect/struct.hpp"

namespace optim_rule_optimizer_test {

struct PowerSignOptions {
  ETUDE_STRUCT(PowerSignOptions, (double, lr, "learning rate" | at_least(0), 0.1),
               (double, momentum, "decay of the mean" | at_least(0).below(1), 0.9),
               (bool, dampened, "divide by the root of the mean square", false),
               (double, weight_decay, "decoupled weight decay" | at_least(0), 0.0));
};

/// Steps against the mean of the gradients, halved where it disagrees with the gradient, with a warmup of
/// three steps.
struct PowerSignRule {
  using Options = PowerSignOptions;

  static auto moments(const Options& o) {
    return std::tuple(etude::OptionalMoment{"square", o.dampened}, etude::Moment{"mean", 0.5});
  }

  auto numbers(const etude::RuleStep& s) const {
    return std::array{s.lr * std::min(1.0, static_cast<double>(s.step) / 3), 1 - s.lr * s.weight_decay};
  }

  template <class V>
  void update(V& value, const V& gradient, auto&& square, V& mean, const auto& numbers) const {
    const auto& [rate, keep] = numbers;
    mean = mean * options.momentum + gradient * (1 - options.momentum);
    V direction = mean * if_positive(mean * gradient, 1, 0.5);
    if constexpr (etude::is_kept<decltype(square)>) {
      square = max(square * 0.5, gradient * gradient);
      direction = direction / (sqrt(square) + 1e-3);
    }
    value = value * keep - direction * rate;
  }

  Options options;
};
using PowerSign = etude::RuleOptimizer<PowerSignRule>;

constexpr std::int64_t elements = 37, steps = 12;

double gradient_at(std::int64_t element, std::int64_t step) {
  return std::sin(static_cast<double>(3 * element + 7 * step)) * (element % 5 == 0 ? 3 : 1);
}

/// The values after all steps, from the formula in scalars.
std::vector<double> expected(const PowerSignOptions& options) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < elements; ++i) {
    double value = 0.1 * static_cast<double>(i), mean = 0.5, square = 0;
    for (std::int64_t step = 1; step <= steps; ++step) {
      const double gradient = gradient_at(i, step),
                   rate = options.lr * (step < 3 ? static_cast<double>(step) / 3 : 1);
      mean = options.momentum * mean + (1 - options.momentum) * gradient;
      double direction = mean * gradient > 0 ? mean : mean / 2;
      square = std::max(square / 2, gradient * gradient);
      if (options.dampened) direction /= std::sqrt(square) + 1e-3;
      value = value * (1 - options.lr * options.weight_decay) - direction * rate;
    }
    values.push_back(value);
  }
  return values;
}

/// The largest difference from the formula.
double difference(const PowerSignOptions& options, at::ScalarType type, bool captured = false) {
  const torch::Tensor parameter =
      torch::arange(elements, at::kDouble).mul(0.1).to(type).set_requires_grad(true);
  PowerSign optimizer({{{{"parameter", parameter}}, {}, {}}}, options);
  for (std::int64_t step = 1; step <= steps; ++step) {
    optimizer.zero_grad();
    std::vector<double> gradient;
    for (std::int64_t i = 0; i < elements; ++i) gradient.push_back(gradient_at(i, step));
    parameter.mutable_grad() = torch::tensor(gradient, at::kDouble).to(type);
    if (captured && step == 4) REQUIRE(optimizer.make_capturable());
    if (captured && step > 5) optimizer.prepare_captured_step();
    optimizer.step();
  }
  return (parameter.detach().to(at::kDouble) - torch::tensor(expected(options), at::kDouble))
      .abs()
      .max()
      .item<double>();
}

TEST_CASE("one formula gives the same in vectors, by LibTorch's operators and in captured steps") {
  for (const bool has_kernels : {true, false}) {
    etude::detail::uses_cpu_kernels() = has_kernels;
    for (const bool dampened : {false, true}) {
      CAPTURE(has_kernels);
      CAPTURE(dampened);
      const PowerSignOptions options{.dampened = dampened, .weight_decay = 0.3};
      CHECK(difference(options, at::kDouble) < 1e-13);
      CHECK(difference(options, at::kFloat) < 1e-5);
      CHECK(difference(options, at::kFloat, /*captured=*/true) < 1e-5);
    }
  }
  etude::detail::uses_cpu_kernels() = true;
}

TEST_CASE("the state has the moments that the options need, with their initial values") {
  const torch::Tensor parameter = torch::zeros({2}).set_requires_grad(true);
  const auto names = [&](bool dampened) {
    PowerSign optimizer({{{{"p", parameter}}, {}, {}}}, {.dampened = dampened});
    parameter.mutable_grad() = torch::zeros({2});
    optimizer.zero_grad();
    parameter.mutable_grad() = torch::zeros({2});
    optimizer.step();
    std::vector<std::string> result;
    for (const auto& [name, tensor] : optimizer.state()) result.push_back(name);
    CHECK(optimizer.state().back().second[0].item<double>() == doctest::Approx(0.45));
    return result;
  };
  CHECK(names(false) == std::vector<std::string>{"p.step", "p.mean"});
  CHECK(names(true) == std::vector<std::string>{"p.step", "p.square", "p.mean"});
}

TEST_CASE("a group's momentum takes the place of the option, which the checkpoint keeps") {
  const torch::Tensor parameter = torch::zeros({1}).set_requires_grad(true);
  PowerSign optimizer({{{{"p", parameter}}, {}, {}}}, {.lr = 1, .momentum = 0.9});
  optimizer.param_groups()[0].momentum = 0.5;
  optimizer.zero_grad();
  parameter.mutable_grad() = torch::ones({1});
  optimizer.step();
  CHECK(parameter.item<double>() == doctest::Approx(-0.75 / 3));  // mean = 0.5 * 0.5 + 0.5 * 1
  CHECK(optimizer.options_state()["given"][0]["momentum"] == 0.9);
}

TEST_CASE("its type is the rule's name, and options out of range are refused") {
  const torch::Tensor parameter = torch::zeros({1}).set_requires_grad(true);
  CHECK(PowerSign({{{{"p", parameter}}, {}, {}}}).type() == "PowerSign");
  CHECK_THROWS_WITH_AS(PowerSign({{{{"p", parameter}}, {}, {}}}, {.momentum = 1}),
                       "momentum is 1: must be at least 0 and below 1", etude::ArgumentError);
}

TEST_CASE("a rule that doesn't round updates bfloat16 parameters too, as LibTorch's operators round") {
  const torch::Tensor parameter = torch::ones({5}, at::kBFloat16).set_requires_grad(true);
  PowerSign optimizer({{{{"p", parameter}}, {}, {}}}, {.lr = 0.3, .momentum = 0});
  optimizer.zero_grad();
  parameter.mutable_grad() = torch::ones({5}, at::kBFloat16);
  optimizer.step();
  CHECK(torch::allclose(parameter.detach().to(at::kFloat), torch::full({5}, 0.9F), 0, 0.004));
}

}  // namespace optim_rule_optimizer_test
