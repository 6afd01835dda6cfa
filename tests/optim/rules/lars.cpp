#include <doctest/doctest.h>
#include <torch/types.h>

#include <algorithm>
#include <optional>

#include "etude/optim/rules/lars.hpp"

#include "beside_formula.hpp"
#include "common/fault_of.hpp"
#include "etude/base/error.hpp"

namespace optim_lars_test {

/// The paper's algorithm 1, with timm's options.
auto formula(const etude::LARSOptions& o) {
  return [o](const torch::Tensor& x, const torch::Tensor& gradient, const beside_formula::Step& s) {
    torch::Tensor g = gradient;
    if (s.weight_decay != 0 || o.always_adapt) {
      const double norm = x.norm().item<double>(), of_gradient = g.norm().item<double>();
      double ratio = 1;
      if (norm > 0 && of_gradient > 0)
        ratio = o.trust_coeff * norm / (of_gradient + s.weight_decay * norm + o.eps);
      if (o.trust_clip) ratio = std::min(ratio / s.lr, 1.0);
      g = ratio * (g + s.weight_decay * x);
    }
    if (o.momentum != 0) {
      torch::Tensor& b = s.zeros("b", x.sizes());
      b = s.number == 1 ? g.clone() : o.momentum * b + (1 - o.dampening) * g;
      g = o.nesterov ? g + o.momentum * b : b;
    }
    x.sub_(s.lr * g);
  };
}

double after_200_steps(const etude::LARSOptions& options) {
  return beside_formula::after_200_steps<etude::LARS>(options, formula(options));
}

TEST_CASE("LARS equals the paper's formula over 200 steps, group by group") {
  CHECK(after_200_steps({.lr = 0.5}) <= 1e-12);
  CHECK(after_200_steps({.lr = 0.5, .momentum = 0.9, .dampening = 0.5, .trust_coeff = 0.01}) <= 1e-12);
  CHECK(after_200_steps({.lr = 0.1, .momentum = 0.9, .nesterov = true, .always_adapt = true}) <= 1e-12);
  CHECK(after_200_steps({.lr = 0.1, .trust_coeff = 0.2, .eps = 0.1, .trust_clip = true}) <= 1e-12);
}

TEST_CASE("LARS moves a parameter by lr * trust_coeff times its norm") {
  // |x| = 5 and |g| = 10, so the ratio is 0.02 * 5 / 10.
  const torch::Tensor x = torch::tensor({3.0, 4.0}, at::kDouble).set_requires_grad(true);
  etude::LARS lars({{{{"x", x}}, {}, {}}}, {.lr = 0.5, .trust_coeff = 0.02, .eps = 0, .always_adapt = true});
  x.mutable_grad() = torch::tensor({6.0, -8.0}, at::kDouble);
  lars.step();
  CHECK(x[0].item<double>() == doctest::Approx(3 - 0.5 * 0.01 * 6).epsilon(1e-14));
  CHECK(x[1].item<double>() == doctest::Approx(4 + 0.5 * 0.01 * 8).epsilon(1e-14));
}

TEST_CASE("LARS with a learning rate of 0 changes nothing") {
  const torch::Tensor x = torch::ones({2}).set_requires_grad(true);
  etude::LARS lars({{{{"x", x}}, {}, {}}}, {.lr = 0, .weight_decay = 0.1, .trust_clip = true});
  x.mutable_grad() = torch::ones({2});
  lars.step();
  CHECK(x.equal(torch::ones({2})));
}

TEST_CASE("LARS takes the momentum of a group, unless it was made without momentum") {
  const auto after_two_steps = [](double own, std::optional<double> of_group) {
    const torch::Tensor x = torch::zeros({1}, at::kDouble).set_requires_grad(true);
    etude::LARS lars({{{{"x", x}}, {}, {}}}, {.lr = 1, .momentum = own});
    lars.param_groups()[0].momentum = of_group;
    for (int step = 0; step < 2; ++step) {
      x.mutable_grad() = torch::ones({1}, at::kDouble);
      lars.step();
    }
    return x.item<double>();
  };
  CHECK(after_two_steps(0.5, {}) == -2.5);
  CHECK(after_two_steps(0.5, 0.25) == -2.25);
  CHECK(after_two_steps(0, 0.25) == -2);
}

TEST_CASE("LARS resumes bit for bit, updates bfloat16 in float32, and refuses Nesterov without momentum") {
  CHECK(beside_formula::resumes_to_the_bit<etude::LARS>(at::kFloat, etude::LARSOptions{.momentum = 0.9}));
  CHECK(beside_formula::resumes_to_the_bit<etude::LARS>(at::kFloat, etude::LARSOptions{}));
  CHECK(beside_formula::updates_halves_in_float32<etude::LARS>(
      etude::LARSOptions{.lr = 10, .momentum = 0.9, .weight_decay = 0.1}));
  CHECK(toy::fault_of<etude::ArgumentError>([] {
          etude::LARS({{{{"x", torch::ones({2}).set_requires_grad(true)}}, {}, {}}}, {.nesterov = true});
        }) == "nesterov is true: momentum must be above 0 and dampening 0");
}

}  // namespace optim_lars_test
