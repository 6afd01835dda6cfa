#include "etude/optim/rules/rprop.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <string>

#include "etude/base/error.hpp"
#include "optim/rules/by_formula.hpp"

namespace optim_rprop_test {

/// The algorithm in the documentation of torch.optim.Rprop.
struct Element {
  etude::RpropOptions options;
  double previous = 0, size = 0;

  void update(double& value, const by_formula::Update& u) {
    if (u.step == 1) size = u.lr;
    double gradient = u.gradient;
    if (gradient * previous > 0)
      size *= options.etaplus;
    else if (gradient * previous < 0) {
      size *= options.etaminus;
      gradient = 0;
    }
    size = std::clamp(size, options.step_size_min, options.step_size_max);
    value -= gradient > 0 ? size : gradient < 0 ? -size : 0;
    previous = gradient;
  }
  std::map<std::string, double> moments() const { return {{"prev", previous}, {"step_size", size}}; }
};

void check(const etude::RpropOptions& options) {
  by_formula::check<etude::Rprop>(options, Element{options}, /*weight_decay=*/0);
}

TEST_CASE("Rprop follows its formula, and keeps its step sizes within their bounds") {
  check({.lr = 0.01});
  check({.lr = 0.01, .etaminus = 0.7, .etaplus = 1.5});
  check({.lr = 0.01, .etaplus = 2, .step_size_min = 2e-3, .step_size_max = 0.03});
}

TEST_CASE("Rprop refuses factors and bounds that don't fit together, and weight decay") {
  const auto tensor = torch::ones({3}).set_requires_grad(true);
  const auto fails = [&](const etude::RpropOptions& options, const char* message, double weight_decay = 0) {
    CHECK_THROWS_WITH_AS(etude::Rprop({{{{"p", tensor}}, {}, weight_decay}}, options), message,
                         etude::ArgumentError);
  };
  fails({.step_size_min = 2, .step_size_max = 1},
        "step_size_min is 2: must be at most step_size_max, which is 1");
  fails({.etaminus = 1, .etaplus = 1},
        "etaminus is 1: must be above 0 and below 1\netaplus is 1: must be above 1 and finite");
  fails({}, "weight_decay is 0.1: must be 0, since Rprop doesn't support it", 0.1);
}

}  // namespace optim_rprop_test
