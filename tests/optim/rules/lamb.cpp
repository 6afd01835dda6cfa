#include <doctest/doctest.h>
#include <torch/types.h>

#include <cmath>

#include "etude/optim/rules/lamb.hpp"

#include "beside_formula.hpp"
#include "etude/optim/rules/adam.hpp"

namespace optim_lamb_test {

/// The paper's algorithm 2, with timm's options.
auto formula(const etude::LAMBOptions& o) {
  return [o](const torch::Tensor& x, const torch::Tensor& g, const beside_formula::Step& s) {
    torch::Tensor &m = s.zeros("m", x.sizes()), &v = s.zeros("v", x.sizes());
    m = o.beta1 * m + (1 - o.beta1) * g;
    v = o.beta2 * v + (1 - o.beta2) * g * g;
    const double c1 = o.bias_correction ? 1 - std::pow(o.beta1, s.number) : 1,
                 c2 = o.bias_correction ? 1 - std::pow(o.beta2, s.number) : 1;
    torch::Tensor r = m / c1 / ((v / c2).sqrt() + o.eps);
    if (o.decoupled_decay)
      x.sub_(s.lr * s.weight_decay * x);
    else
      r = r + s.weight_decay * x;
    double ratio = 1;
    const double norm = x.norm().item<double>(), of_update = r.norm().item<double>();
    if ((s.weight_decay != 0 || o.always_adapt) && norm > 0 && of_update > 0) ratio = norm / of_update;
    if (o.trust_clip) ratio = std::min(ratio, 1.0);
    x.sub_(s.lr * ratio * r);
  };
}

double after_200_steps(const etude::LAMBOptions& options) {
  return beside_formula::after_200_steps<etude::LAMB>(options, formula(options));
}

TEST_CASE("LAMB equals the paper's formula over 200 steps, group by group") {
  CHECK(after_200_steps({.lr = 0.01}) <= 1e-12);
  CHECK(after_200_steps({.lr = 0.01, .beta1 = 0.8, .beta2 = 0.9, .eps = 0.1, .always_adapt = true}) <= 1e-12);
  CHECK(after_200_steps({.lr = 0.01, .bias_correction = false, .trust_clip = true}) <= 1e-12);
  CHECK(after_200_steps({.lr = 0.01, .decoupled_decay = true}) <= 1e-12);
}

TEST_CASE("LAMB's first step has the length lr times the norm of the parameter") {
  // Adam's first update is the sign of the gradient, [1, -1], which has norm sqrt(2); [3, 4] has norm 5.
  const torch::Tensor x = torch::tensor({3.0, 4.0}, at::kDouble).set_requires_grad(true);
  etude::LAMB lamb({{{{"x", x}}, {}, {}}}, {.lr = 0.1, .eps = 0, .weight_decay = 0, .always_adapt = true});
  x.mutable_grad() = torch::tensor({7.0, -0.5}, at::kDouble);
  lamb.step();
  const double change = 0.1 * 5 / std::sqrt(2);
  CHECK(x[0].item<double>() == doctest::Approx(3 - change).epsilon(1e-14));
  CHECK(x[1].item<double>() == doctest::Approx(4 + change).epsilon(1e-14));
}

TEST_CASE("LAMB updates a parameter of zeros as Adam does") {
  const torch::Tensor x = torch::zeros({3}).set_requires_grad(true);
  etude::LAMB lamb({{{{"x", x}}, {}, {}}}, {.lr = 0.5});
  x.mutable_grad() = torch::tensor({2.0F, -3.0F, 0.0F});
  lamb.step();
  CHECK(torch::allclose(x, torch::tensor({-0.5F, 0.5F, 0.0F})));
}

TEST_CASE("LAMB without weight decay and adaptation is Adam") {
  const beside_torch::Twins twins(at::kFloat);
  etude::LAMB lamb(beside_torch::groups_of(twins.ours, false), {.lr = 0.01, .weight_decay = 0});
  etude::Adam adam(beside_torch::groups_of(twins.theirs, false), {.lr = 0.01, .eps = 1e-6});
  for (std::int64_t step = 0; step < 200; ++step) {
    lamb.zero_grad();
    adam.zero_grad();
    twins.set_gradients(step);
    lamb.step();
    adam.step();
  }
  CHECK(twins.difference() <= 1e-6);
}

TEST_CASE("LAMB resumes bit for bit and updates bfloat16 in float32") {
  CHECK(beside_formula::resumes_to_the_bit<etude::LAMB>(at::kFloat, etude::LAMBOptions{}));
  CHECK(beside_formula::updates_halves_in_float32<etude::LAMB>(etude::LAMBOptions{.lr = 0.1}));
}

}  // namespace optim_lamb_test
