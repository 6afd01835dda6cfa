#include "etude/optim/rules/ademamix.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>

#include "optim/rules/by_formula.hpp"

namespace optim_ademamix_test {

/// The paper's algorithm 1, with its schedules.
struct Element {
  etude::AdEMAMixOptions options;
  double fast = 0, slow = 0, square = 0;

  double alpha(double n) const {
    if (options.t_alpha == 0) return options.alpha;
    return std::min(n * options.alpha / static_cast<double>(options.t_alpha), options.alpha);
  }
  double beta3(double n) const {
    if (options.t_beta3 == 0) return options.beta3;
    const double start = std::log(options.beta1), end = std::log(options.beta3);
    const double part = n / static_cast<double>(options.t_beta3);
    return std::min(std::exp(start * end / ((1 - part) * end + part * start)), options.beta3);
  }
  void update(double& value, const by_formula::Update& u) {
    const auto n = static_cast<double>(u.step);
    fast = options.beta1 * fast + (1 - options.beta1) * u.gradient;
    slow = beta3(n) * slow + (1 - beta3(n)) * u.gradient;
    square = options.beta2 * square + (1 - options.beta2) * u.gradient * u.gradient;
    const double mean = fast / (1 - std::pow(options.beta1, n)),
                 variance = square / (1 - std::pow(options.beta2, n));
    value -= u.lr * ((mean + alpha(n) * slow) / (std::sqrt(variance) + options.eps) + u.weight_decay * value);
  }
  std::map<std::string, double> moments() const {
    return {{"exp_avg_fast", fast}, {"exp_avg_slow", slow}, {"exp_avg_sq", square}};
  }
};

void check(const etude::AdEMAMixOptions& options) {
  by_formula::check<etude::AdEMAMix>(options, Element{options});
}

TEST_CASE("AdEMAMix follows the paper's algorithm and schedules") {
  check({.lr = 0.01});
  check({.lr = 0.01, .beta1 = 0.8, .beta2 = 0.99, .beta3 = 0.995, .alpha = 2, .eps = 1e-3});
  check({.lr = 0.01, .beta3 = 0.999, .alpha = 8, .t_alpha = 200, .t_beta3 = 200});
  check({.lr = 0.01, .beta3 = 0.999, .t_alpha = 50});
  check({.lr = 0.01, .beta3 = 0.999, .t_beta3 = 50});
}

TEST_CASE("the half-life of AdEMAMix's slow mean grows linearly from the fast one's") {
  const auto half_life = [](double beta) { return std::log(0.5) / std::log(beta); };
  for (const double beta1 : {0.9, 0.5}) {
    const etude::AdEMAMixRule rule{{.beta1 = beta1, .beta3 = 0.9999, .t_beta3 = 100}};
    for (const std::int64_t step : {1, 25, 50, 99, 100, 1000}) {
      const double part = std::min(1., static_cast<double>(step) / 100);
      CHECK(half_life(rule.numbers({.lr = 1, .weight_decay = 0, .step = step})[2]) ==
            doctest::Approx((1 - part) * half_life(beta1) + part * half_life(0.9999)).epsilon(1e-9));
    }
  }
}

TEST_CASE("AdEMAMix's schedule of beta3 starts at a beta1 of 0, and never exceeds beta3") {
  const auto beta3 = [](const etude::AdEMAMixOptions& options, std::int64_t step) {
    return etude::AdEMAMixRule{options}.numbers({.lr = 1, .weight_decay = 0, .step = step})[2];
  };
  CHECK(beta3({.beta1 = 0, .beta3 = 0.99, .t_beta3 = 4}, 2) == doctest::Approx(0.99 * 0.99));
  CHECK(beta3({.beta1 = 0, .beta3 = 0.99, .t_beta3 = 4}, 4) == 0.99);
  for (const std::int64_t step : {1, 3, 4, 9})
    CHECK(beta3({.beta1 = 0.9, .beta3 = 0.5, .t_beta3 = 4}, step) == 0.5);
  for (const std::int64_t step : {1, 3, 4, 9})
    CHECK(beta3({.beta1 = 0.9, .beta3 = 0, .t_beta3 = 4}, step) == 0);
}

}  // namespace optim_ademamix_test
