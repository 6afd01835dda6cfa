#include "etude/optim/rules/radam.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <string>

#include "optim/rules/by_formula.hpp"

namespace optim_radam_test {

/// The paper's algorithm 2, with the threshold 5 and the eps of torch.optim.RAdam.
struct Element {
  etude::RAdamOptions options;
  double mean = 0, square = 0;

  void update(double& value, const by_formula::Update& u) {
    const auto n = static_cast<double>(u.step);
    double gradient = u.gradient;
    if (options.decoupled_weight_decay)
      value -= u.lr * u.weight_decay * value;
    else
      gradient += u.weight_decay * value;
    mean += (1 - options.beta1) * (gradient - mean);
    square += (1 - options.beta2) * (gradient * gradient - square);
    const double corrected = mean / (1 - std::pow(options.beta1, n));
    const double power = std::pow(options.beta2, n);
    const double limit = 2 / (1 - options.beta2) - 1, length = limit - 2 * n * power / (1 - power);
    if (length > 5) {
      const double rectification =
          std::sqrt((length - 4) * (length - 2) * limit / ((limit - 4) * (limit - 2) * length));
      value -= u.lr * corrected * rectification * std::sqrt(1 - power) / (std::sqrt(square) + options.eps);
    } else {
      value -= u.lr * corrected;
    }
  }
  std::map<std::string, double> moments() const { return {{"exp_avg", mean}, {"exp_avg_sq", square}}; }
};

void check(const etude::RAdamOptions& options) { by_formula::check<etude::RAdam>(options, Element{options}); }

TEST_CASE("RAdam follows its formula with a penalty or decoupled decay, and if its rate is never adaptive") {
  check({.lr = 0.01});
  check({.lr = 0.01, .beta1 = 0.8, .beta2 = 0.99, .eps = 1e-3, .decoupled_weight_decay = true});
  check({.lr = 0.01, .beta2 = 0.5});
}

TEST_CASE("RAdam leaves the root of the squares alone while it doesn't divide by it") {
  // Without eps, the root of 0 would make them NaN.
  const auto tensor = torch::ones({5}).set_requires_grad(true);
  etude::RAdam optimizer({{{{"p", tensor}}, {}, {}}}, {.eps = 0});
  for (const double gradient : {0., 1.}) {
    tensor.mutable_grad() = torch::full({5}, gradient);
    optimizer.step();
  }
  // The mean is 0.1, and 1 - 0.9^2 is 0.19.
  CHECK(torch::allclose(tensor.detach(), torch::full({5}, 1 - 1e-3 * 0.1 / 0.19)));
}

}  // namespace optim_radam_test
