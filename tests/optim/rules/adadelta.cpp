#include "etude/optim/rules/adadelta.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <string>

#include "optim/rules/by_formula.hpp"

namespace optim_adadelta_test {

/// The paper's algorithm 1, with the learning rate and the penalty of torch.optim.Adadelta.
struct Element {
  etude::AdadeltaOptions options;
  double squares = 0, deltas = 0;

  void update(double& value, const by_formula::Update& u) {
    const double gradient = u.gradient + u.weight_decay * value;
    squares = options.rho * squares + (1 - options.rho) * gradient * gradient;
    const double delta = std::sqrt(deltas + options.eps) / std::sqrt(squares + options.eps) * gradient;
    deltas = options.rho * deltas + (1 - options.rho) * delta * delta;
    value -= u.lr * delta;
  }
  std::map<std::string, double> moments() const { return {{"square_avg", squares}, {"acc_delta", deltas}}; }
};

void check(const etude::AdadeltaOptions& options) {
  by_formula::check<etude::Adadelta>(options, Element{options});
}

TEST_CASE("Adadelta follows its formula") {
  check({});
  check({.lr = 0.3, .rho = 0.7, .eps = 1e-3});
}

}  // namespace optim_adadelta_test
