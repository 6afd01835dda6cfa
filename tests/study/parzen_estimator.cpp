#include "etude/study/parzen_estimator.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

namespace study_parzen_estimator_test {

using etude::Choices;
using etude::Distribution;
using etude::FloatRange;
using etude::IntRange;
using etude::detail::ParzenEstimator;
using etude::detail::Point;
using Space = std::map<std::string, Distribution>;

Space space() {
  return {{"c", Choices{{"a", "b", "c"}}},
          {"f", FloatRange{-1, 3}},
          {"i", IntRange{.low = 1, .high = 9, .step = 2}},
          {"l", FloatRange{.low = 1e-3, .high = 1, .log = true}},
          {"n", IntRange{.low = 1, .high = 64, .log = true}},
          {"s", FloatRange{.low = 0, .high = 1, .step = 0.25}}};
}
std::vector<Point> observations() {
  return {{{"c", 0}, {"f", -0.5}, {"i", 3}, {"l", 0.01}, {"n", 4}, {"s", 0.25}},
          {{"c", 2}, {"f", 2.0}, {"i", 9}, {"l", 0.5}, {"n", 64}, {"s", 1.0}},
          {{"c", 2}, {"f", 2.1}, {"i", 1}, {"l", 0.02}, {"n", 7}, {"s", 0.0}}};
}
std::vector<Point> points() {
  return {{{"c", 1}, {"f", 0.7}, {"i", 5}, {"l", 0.03}, {"n", 10}, {"s", 0.5}},
          {{"c", 2}, {"f", 2.05}, {"i", 9}, {"l", 0.9}, {"n", 60}, {"s", 1.0}}};
}

void check(const ParzenEstimator& estimator, const std::vector<double>& expected) {
  for (std::size_t i = 0; i < expected.size(); ++i)
    CHECK(estimator.log_density(points()[i]) == doctest::Approx(expected[i]).epsilon(1e-12));
}

TEST_CASE("densities are those of Optuna's estimator") {
  // optuna.samplers._tpe.parzen_estimator._ParzenEstimator(...).log_pdf of Optuna 5.0
  check({space(), observations()}, {-11.771185374725533, -12.145309738202974});
  check({space(), {observations()[0]}}, {-11.474590833446534, -14.052686196481423});
  check({space(), {}}, {-11.32722699929529, -13.539268121903199});
  const std::map<std::string, std::vector<double>> each{{"c", {-1.6582280766035324, -0.7419373447293772}},
                                                        {"f", {-1.4621052306422448, -1.1166671188351747}},
                                                        {"i", {-1.7034631882928128, -1.8987414082356846}},
                                                        {"l", {-1.7484718788872784, -2.2064169028923324}},
                                                        {"n", {-3.7014364872820398, -5.803422398068696}}};
  for (const auto& one : each) {
    CAPTURE(one.first);
    check({{{one.first, space().at(one.first)}}, observations()}, one.second);
  }
}

TEST_CASE("old observations weigh less, as in Optuna") {
  std::vector<Point> many;
  for (int i = 0; i < 40; ++i) {
    const double x = -1 + 4.0 * i / 39;
    many.push_back({{"f", x * x / 3 - 0.5}});
  }
  check({{{"f", FloatRange{-1, 3}}}, many}, {-1.4431234215163802, -1.8131223717494402});
}

/// Like `check`, with one hyperparameter, "x".
void check_one(const Distribution& distribution, const std::vector<double>& observed,
               const std::vector<double>& at, const std::vector<double>& expected) {
  std::vector<Point> points;
  for (const double each : observed) points.push_back({{"x", each}});
  const ParzenEstimator estimator({{"x", distribution}}, points);
  for (std::size_t i = 0; i < at.size(); ++i)
    CHECK(estimator.log_density({{"x", at[i]}}) == doctest::Approx(expected[i]).epsilon(1e-12));
}

TEST_CASE("densities are Optuna's for observations outside the range, from before it was changed") {
  std::vector<double> far, whole, small;
  for (int i = 0; i < 40; ++i) {
    far.push_back(0.1 * i / 40);
    whole.push_back(i);
  }
  for (int i = 0; i < 60; ++i) small.push_back(1e-3 * (1 + i / 60.0));
  check_one(FloatRange{10, 20}, far, {10.001, 10.5, 19},
            {4.962071861533203, -5.879984141172312, -5.858734141172312});
  check_one(FloatRange{-20, -10}, far, {-10.001, -10.5, -19},
            {4.9714861842056575, -5.879984141172312, -5.858734141172312});
  check_one(IntRange{.low = 1000, .high = 1100}, whole, {1000, 1001, 1050},
            {-0.029854971870989733, -8.20895722893359, -8.091273649579719});
  check_one(FloatRange{.low = 1e3, .high = 1e6, .log = true}, small, {1001, 5e5},
            {5.882470430765454, -5.750973200137317});
  check_one(FloatRange{0, 100}, std::vector<double>(98, -0.5), {0, 0.5, 50},
            {0.11607038244014678, -0.2588699035814326, -8.705300440204748});
}

TEST_CASE("samples from kernels far outside the range follow the density") {
  for (const bool is_above : {false, true}) {
    const double low = is_above ? 10 : -20;
    const std::vector<Point> far(40, {{"x", is_above ? 0.1 : -0.1}});
    const ParzenEstimator estimator({{"x", FloatRange{low, low + 10}}}, far);
    etude::RandomNumbers random(1);
    int close = 0, middle = 0;
    const int count = 4000;
    for (int i = 0; i < count; ++i) {
      const double depth =
          is_above ? estimator.sample(random).at("x") - 10 : -10 - estimator.sample(random).at("x");
      close += depth < 0.004;
      middle += depth > 0.1;
    }
    double expected = 0;
    for (double depth = 0.5e-6; depth < 0.004; depth += 1e-6)
      expected += 1e-6 * std::exp(estimator.log_density({{"x", is_above ? 10 + depth : -10 - depth}}));
    CHECK(expected > 0.4);
    CHECK(expected < 0.95);
    CHECK(close / static_cast<double>(count) == doctest::Approx(expected).epsilon(0.04));
    CHECK(middle < count / 10);  // the prior's
  }
}

TEST_CASE("a range that its steps don't fill ends at the last of them, as in Optuna") {
  check_one(FloatRange{.low = 0, .high = 1, .step = 0.3}, {0, 0.3, 0.9}, {0, 0.9},
            {-1.2248546029676748, -1.6278142842652485});
  check_one(IntRange{.low = 1, .high = 8, .step = 3}, {1, 7, 7}, {1, 7},
            {-1.4058077263070121, -0.8443910783422045});
  const ParzenEstimator estimator({{"x", FloatRange{.low = 0, .high = 1, .step = 0.3}}}, {{{"x", 0.9}}});
  etude::RandomNumbers random(1);
  for (int i = 0; i < 1000; ++i) CHECK(estimator.sample(random).at("x") <= 0.9 + 1e-12);
}

TEST_CASE("samples stay in the space and follow the density") {
  const auto sampled = space();
  const ParzenEstimator estimator(sampled, observations());
  etude::RandomNumbers random(1);
  const int count = 20000;
  std::map<double, int> choices, odd;
  double below = 0;
  for (int i = 0; i < count; ++i) {
    const auto point = estimator.sample(random);
    for (const auto& one : point) {
      CAPTURE(one.first);
      const auto& distribution = sampled.at(one.first);
      CHECK(etude::to_number("it", distribution, etude::from_number(distribution, one.second)) == one.second);
    }
    ++choices[point.at("c")];
    ++odd[point.at("i")];
    below += point.at("f") < 0.7;
  }
  const auto share = [&](double n) { return n / count; };
  // For a single hyperparameter, the shares of samples follow the density.
  const ParzenEstimator one({{"c", space().at("c")}}, observations()),
      two({{"i", space().at("i")}}, observations());
  for (const auto& [value, n] : choices)
    CHECK(share(n) == doctest::Approx(std::exp(one.log_density({{"c", value}}))).epsilon(0.05));
  CHECK(odd.size() == 5);
  for (const auto& [value, n] : odd)
    CHECK(share(n) == doctest::Approx(std::exp(two.log_density({{"i", value}}))).epsilon(0.06));
  // The density of "f", integrated up to 0.7.
  const ParzenEstimator f({{"f", space().at("f")}}, observations());
  double sum = 0;
  for (double x = -1 + 0.0005; x < 0.7; x += 0.001) sum += std::exp(f.log_density({{"f", x}})) * 0.001;
  CHECK(share(below) == doctest::Approx(sum).epsilon(0.04));
}

}  // namespace study_parzen_estimator_test
