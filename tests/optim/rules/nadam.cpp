#include "etude/optim/rules/nadam.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <string>

#include "optim/rules/by_formula.hpp"

namespace optim_nadam_test {

/// The algorithm in the documentation of torch.optim.NAdam.
struct Element {
  etude::NAdamOptions options;
  double mean = 0, square = 0, product = 1;

  void update(double& value, const by_formula::Update& u) {
    const auto n = static_cast<double>(u.step);
    const auto momentum = [&](double step) {
      return options.beta1 * (1 - 0.5 * std::pow(0.96, step * options.momentum_decay));
    };
    double gradient = u.gradient;
    if (options.decoupled_weight_decay)
      value -= u.lr * u.weight_decay * value;
    else
      gradient += u.weight_decay * value;
    product *= momentum(n);
    mean += (1 - options.beta1) * (gradient - mean);
    square += (1 - options.beta2) * (gradient * gradient - square);
    const double corrected = momentum(n + 1) * mean / (1 - product * momentum(n + 1)) +
                             (1 - momentum(n)) * gradient / (1 - product);
    value -= u.lr * corrected / (std::sqrt(square / (1 - std::pow(options.beta2, n))) + options.eps);
  }
  std::map<std::string, double> moments() const { return {{"exp_avg", mean}, {"exp_avg_sq", square}}; }
};

void check(const etude::NAdamOptions& options) { by_formula::check<etude::NAdam>(options, Element{options}); }

TEST_CASE("NAdam follows its formula with a penalty, decoupled decay, and any growth of the momentum") {
  check({.lr = 0.01});
  check({.lr = 0.01, .beta1 = 0.8, .beta2 = 0.99, .eps = 1e-3, .decoupled_weight_decay = true});
  check({.lr = 0.01, .momentum_decay = 2});
  check({.lr = 0.01, .momentum_decay = 0});
}

TEST_CASE("the products of NAdam's momenta are the same in any order of steps, and few are kept") {
  for (const double decay : {0., 1e-5, 4e-3, 0.1, 2., 1000.}) {
    CAPTURE(decay);
    const etude::NAdamOptions options{.beta1 = 0.999, .momentum_decay = decay};
    double product = 1;
    std::map<std::int64_t, double> expected{{0, 1.}};
    for (std::int64_t step = 1; step <= 100'000; ++step)
      expected[step] = product *= 1 - 0.5 * std::pow(0.96, static_cast<double>(step) * decay);
    etude::NAdamRule rule{options};
    for (const std::int64_t step : {3, 1, 500, 20, 100'000, 2, 1, 7'000}) {
      CAPTURE(step);
      CHECK(rule.growth_product(step) == doctest::Approx(expected[step]).epsilon(1e-12));
    }
    CHECK(rule.growth_products.size() < 50'000);
  }
}

}  // namespace optim_nadam_test
