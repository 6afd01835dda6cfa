#include "etude/optim/rules/asgd.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "optim/rules/by_formula.hpp"

namespace optim_asgd_test {

/// The update of torch.optim.ASGD, in which eta and mu are computed after a step for the next one.
struct Element {
  etude::ASGDOptions options;
  double average = 0, mu = 1;

  void update(double& value, const by_formula::Update& u) {
    const auto done = static_cast<double>(u.step - 1);
    const double eta = u.lr / std::pow(1 + options.lambd * u.lr * done, options.alpha);
    const double gradient = u.gradient + u.weight_decay * value;
    value = value * (1 - options.lambd * eta) - eta * gradient;
    average = mu == 1 ? value : average + (value - average) * mu;
    mu = 1 / std::max(1., static_cast<double>(u.step) - options.t0);
  }
  std::map<std::string, double> moments() const { return {{"ax", average}}; }
};

void check(const etude::ASGDOptions& options) { by_formula::check<etude::ASGD>(options, Element{options}); }

TEST_CASE("ASGD follows its formula, before it averages and while it does") {
  check({.lr = 0.05});
  check({.lr = 0.05, .lambd = 0.1, .alpha = 0.6, .t0 = 20});
}

TEST_CASE("ASGD averages the weights since step t0") {
  const auto tensor = torch::zeros({3}, at::kDouble).set_requires_grad(true);
  etude::ASGD optimizer({{{{"p", tensor}}, {}, {}}}, {.lr = 1, .lambd = 0, .t0 = 4});
  for (int step = 0; step < 9; ++step) {
    tensor.mutable_grad() = -torch::ones({3}, at::kDouble);
    optimizer.step();
  }
  // The weights are 1 after the first step and 9 after the last. The average starts at the weights after step
  // 6, whose mu is 1.
  const auto state = optimizer.state();
  REQUIRE(state.back().first == "p.ax");
  CHECK(torch::allclose(state.back().second, torch::full({3}, (6 + 7 + 8 + 9) / 4., at::kDouble)));
}

}  // namespace optim_asgd_test
