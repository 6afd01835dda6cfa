// Minimizes functions with each sampler as run.py does with Optuna's: study_bench SEEDS TRIALS. Prints each
// seed's best value as JSON, by function and sampler.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "etude/study/study.hpp"

namespace {

using std::numbers::pi;

double square(double x) { return x * x; }

template <std::size_t N>
std::array<double, N> point(etude::Trial& trial, const etude::FloatRange& range) {
  std::array<double, N> x;
  for (std::size_t i = 0; i < N; ++i) x[i] = trial.suggest_float("x" + std::to_string(i), range);
  return x;
}

double branin(etude::Trial& trial) {
  const double x = trial.suggest_float("x", {.low = -5, .high = 10});
  const double y = trial.suggest_float("y", {.low = 0, .high = 15});
  const double least = 0.397887;
  return square(y - 5.1 / (4 * pi * pi) * x * x + 5 / pi * x - 6) + 10 * (1 - 1 / (8 * pi)) * std::cos(x) +
         10 - least;
}

double hartmann6(etude::Trial& trial) {
  static constexpr double scale[4] = {1, 1.2, 3, 3.2};
  static constexpr double widths[4][6] = {
      {10, 3, 17, 3.5, 1.7, 8}, {.05, 10, 17, .1, 8, 14}, {3, 3.5, 1.7, 10, 17, 8}, {17, 8, .05, 10, .1, 14}};
  static constexpr double centres[4][6] = {{.1312, .1696, .5569, .0124, .8283, .5886},
                                           {.2329, .4135, .8307, .3736, .1004, .9991},
                                           {.2348, .1451, .3522, .2883, .3047, .6650},
                                           {.4047, .8828, .8732, .5743, .1091, .0381}};
  const auto x = point<6>(trial, {.low = 0, .high = 1});
  double value = 3.32237;  // minus the minimum
  for (std::size_t i = 0; i < 4; ++i) {
    double sum = 0;
    for (std::size_t j = 0; j < 6; ++j) sum += widths[i][j] * square(x[j] - centres[i][j]);
    value -= scale[i] * std::exp(-sum);
  }
  return value;
}

double rosenbrock5(etude::Trial& trial) {
  const auto x = point<5>(trial, {.low = -5, .high = 10});
  double value = 0;
  for (std::size_t i = 0; i + 1 < x.size(); ++i)
    value += 100 * square(x[i + 1] - x[i] * x[i]) + square(1 - x[i]);
  return value;
}

double ackley10(etude::Trial& trial) {
  const auto x = point<10>(trial, {.low = -32.768, .high = 32.768});
  double squares = 0, cosines = 0;
  for (const double each : x) {
    squares += each * each / 10;
    cosines += std::cos(2 * pi * each) / 10;
  }
  return -20 * std::exp(-0.2 * std::sqrt(squares)) - std::exp(cosines) + 20 + std::numbers::e;
}

/// A function with conditional hyperparameters: one of them decides which others exist.
double conditional(etude::Trial& trial) {
  const auto optimizer = trial.suggest_categorical<std::string>("optimizer", {"sgd", "adam"});
  const double rate = std::log10(trial.suggest_float("lr", {.low = 1e-5, .high = 1, .log = true}));
  const auto layers = static_cast<double>(trial.suggest_int("layers", {.low = 1, .high = 8}));
  if (optimizer == "sgd") {
    const double momentum = trial.suggest_float("momentum", {.low = 0, .high = 0.99});
    return square(rate + 1.5) + 2 * square(momentum - 0.9) + 0.1 * std::abs(layers - 4) + 0.1;
  }
  const double beta2 = trial.suggest_float("beta2", {.low = 0.9, .high = 0.9999});
  return square(rate + 3) + 20 * square(beta2 - 0.98) + 0.1 * std::abs(layers - 3);
}

}  // namespace

int main(int, char** argv) {
  const auto seeds = std::stoull(argv[1]);
  const int trials = std::stoi(argv[2]);
  const std::vector<std::pair<std::string, double (*)(etude::Trial&)>> functions{
      {"branin", branin},
      {"hartmann6", hartmann6},
      {"rosenbrock5", rosenbrock5},
      {"ackley10", ackley10},
      {"conditional", conditional}};
  nlohmann::json results;
  for (const auto& [name, function] : functions)
    for (const std::string sampler : {"tpe", "random", "qmc"})
      for (std::uint64_t seed = 0; seed < seeds; ++seed) {
        std::shared_ptr<const etude::Sampler> chosen = std::make_shared<etude::TPESampler>();
        if (sampler == "random") chosen = std::make_shared<etude::RandomSampler>();
        if (sampler == "qmc") chosen = std::make_shared<etude::QMCSampler>(seed);
        etude::Study study({.sampler = chosen, .seed = seed});
        double best = std::numeric_limits<double>::infinity();
        for (int i = 0; i < trials; ++i) {
          auto trial = study.ask();
          const double value = function(trial);
          study.tell(trial, value);
          best = std::min(best, value);
        }
        results[name][sampler].push_back(best);
      }
  fmt::print("{}\n", results.dump());
}
