#include <doctest/doctest.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>

#include "etude/optim/rules/stable_adamw.hpp"

#include "beside_formula.hpp"

namespace optim_stable_adamw_test {

/// The paper's algorithm 2: the decays of the means are corrected, which does the same as correcting their
/// bias.
auto formula(const etude::StableAdamWOptions& o) {
  return [o](const torch::Tensor& x, const torch::Tensor& g, const beside_formula::Step& s) {
    const auto decay = [&](double beta) {
      return beta * (1 - std::pow(beta, s.number - 1)) / (1 - std::pow(beta, s.number));
    };
    const double beta1 = decay(o.beta1), beta2 = decay(o.beta2);
    torch::Tensor &m = s.zeros("m", x.sizes()), &v = s.zeros("v", x.sizes());
    m = beta1 * m + (1 - beta1) * g;
    v = beta2 * v + (1 - beta2) * g * g;
    const double rms = (g * g / v.clamp_min(o.eps * o.eps)).mean().sqrt().item<double>();
    const double lr = s.lr / std::max(1.0, rms);
    x.sub_(lr * s.weight_decay * x).sub_(lr * m / (v.sqrt() + o.eps));
  };
}

double after_200_steps(const etude::StableAdamWOptions& options) {
  return beside_formula::after_200_steps<etude::StableAdamW>(options, formula(options));
}

TEST_CASE("StableAdamW equals the paper's formula over 200 steps, group by group") {
  CHECK(after_200_steps({.lr = 0.01}) <= 1e-12);
  CHECK(after_200_steps({.lr = 0.01, .beta1 = 0.8, .beta2 = 0.95, .eps = 1.5}) <= 1e-12);
}

TEST_CASE("a gradient 1,000 times as large as those before doesn't make StableAdamW step further") {
  const torch::Tensor x = torch::zeros({1}, at::kDouble).set_requires_grad(true);
  etude::StableAdamW optimizer({{{{"x", x}}, {}, {}}}, {.lr = 1, .beta1 = 0, .eps = 0, .weight_decay = 0});
  double largest = 0;
  for (int step = 0; step < 200; ++step) {
    const double before = x.item<double>();
    x.mutable_grad() = torch::full({1}, step == 199 ? 1000.0 : 1.0, at::kDouble);
    optimizer.step();
    largest = std::max(largest, before - x.item<double>());
  }
  // AdamW would step by 1000 / sqrt(0.01 * 1000^2 + 0.99), almost 10.
  CHECK(largest == doctest::Approx(1).epsilon(1e-9));
}

TEST_CASE("StableAdamW resumes bit for bit and updates bfloat16 in float32") {
  CHECK(beside_formula::resumes_to_the_bit<etude::StableAdamW>(at::kFloat, etude::StableAdamWOptions{}));
  CHECK(beside_formula::updates_halves_in_float32<etude::StableAdamW>(etude::StableAdamWOptions{.lr = 0.1}));
}

}  // namespace optim_stable_adamw_test
