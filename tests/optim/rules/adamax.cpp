#include "etude/optim/rules/adamax.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "optim/rules/by_formula.hpp"

namespace optim_adamax_test {

/// The paper's algorithm 2, with the eps and the penalty of torch.optim.Adamax.
struct Element {
  etude::AdamaxOptions options;
  double mean = 0, largest = 0;

  void update(double& value, const by_formula::Update& u) {
    const double gradient = u.gradient + u.weight_decay * value;
    mean = options.beta1 * mean + (1 - options.beta1) * gradient;
    largest = std::max(options.beta2 * largest, std::abs(gradient) + options.eps);
    value -= u.lr / (1 - std::pow(options.beta1, static_cast<double>(u.step))) * mean / largest;
  }
  std::map<std::string, double> moments() const { return {{"exp_avg", mean}, {"exp_inf", largest}}; }
};

void check(const etude::AdamaxOptions& options) {
  by_formula::check<etude::Adamax>(options, Element{options});
}

TEST_CASE("Adamax follows its formula") {
  check({.lr = 0.01});
  check({.lr = 0.01, .beta1 = 0.8, .beta2 = 0.9, .eps = 0.1});
}

}  // namespace optim_adamax_test
