#include "etude/base/error.hpp"
#include "etude/metrics/mean_absolute_error.hpp"
#include "etude/metrics/mean_squared_error.hpp"
#include "etude/metrics/r2_score.hpp"
#include "metrics/reference.hpp"

namespace metrics_regression_examples_test {

using namespace etude::metrics;
using reference::check, reference::over;

/// The stored predictions and targets, with three outputs.
torch::Tensor outputs(torch::ScalarType dtype) {
  return reference::tensor(reference::outputs, {-1, 3}, dtype);
}
torch::Tensor targets(torch::ScalarType dtype) {
  return reference::tensor(reference::targets, {-1, 3}, dtype);
}

TEST_CASE("MSE, MAE and R2 are scikit-learn's, for one output and for several") {
  for (const auto& [dtype, tolerance] : {std::pair{torch::kDouble, 1e-12}, std::pair{torch::kFloat, 1e-6}}) {
    const auto p = outputs(dtype), y = targets(dtype);
    check(over(MeanSquaredError(), p, y).at("mse"), "three mse", tolerance);
    check(over(MeanAbsoluteError(), p, y).at("mae"), "three mae", tolerance);
    check(over(R2Score(), p, y).at("r2"), "three r2", tolerance);
    const auto p1 = p.select(1, 0), y1 = y.select(1, 0);
    check(over(MeanSquaredError(), p1, y1).at("mse"), "one mse", tolerance);
    check(over(MeanAbsoluteError(), p1.unsqueeze(1), y1).at("mae"), "one mae", tolerance);
    check(over(R2Score(), p1, y1.unsqueeze(1)).at("r2"), "one r2", tolerance);
  }
}

TEST_CASE("R2 stays precise for labels far from 0") {
  const auto p = outputs(torch::kDouble).select(1, 0) + 1e6, y = targets(torch::kDouble).select(1, 0) + 1e6;
  check(over(R2Score(), p, y).at("r2"), "far r2", 1e-9);
  check(over(MeanSquaredError(), p, y).at("mse"), "far mse", 1e-9);
}

TEST_CASE("R2 of equal labels, of one label and of none are scikit-learn's") {
  const auto same = torch::full({3}, 2.);
  check(over(R2Score(), same, same).at("r2"), "constant right r2");
  check(over(R2Score(), torch::tensor({2., 3., 2.}), same).at("r2"), "constant wrong r2");
  check(over(R2Score(), torch::tensor({2.}), torch::tensor({2.})).at("r2"), "single r2");
  // 0.1 isn't a binary fraction, so a rounded mean of equal labels would differ from them.
  const auto tenths = torch::full({20}, 0.1, torch::kDouble);
  CHECK(over(R2Score(), tenths + 1, tenths).at("r2") == 0);
  CHECK(std::isnan(R2Score().compute().at("r2")));
}

TEST_CASE("without labels the errors are NaN") {
  CHECK(std::isnan(MeanSquaredError().compute().at("mse")));
  MeanAbsoluteError mae;
  mae.update(torch::zeros({0}), torch::zeros({0}));
  CHECK(std::isnan(mae.compute().at("mae")));
  R2Score r2;
  r2.update(torch::zeros({0, 3}), torch::zeros({0, 3}));
  CHECK(std::isnan(r2.compute().at("r2")));
}

TEST_CASE("NaN inputs give NaN") {
  const auto p = torch::tensor({reference::nan, 1.}), y = torch::tensor({0., 1.});
  CHECK(std::isnan(over(MeanSquaredError(), p, y).at("mse")));
  CHECK(std::isnan(over(R2Score(), p, y).at("r2")));
}

TEST_CASE("labels of ignore_index are left out with their predictions; without one, -100 is a number") {
  const auto p = torch::tensor({{1., reference::nan}, {2., 4.}, {4., 5.}}),
             y = torch::tensor({{1., -100.}, {3., 4.}, {3., 6.}});
  CHECK(over(MeanSquaredError({.ignore_index = -100}), p, y).at("mse") == doctest::Approx(3 / 5.));
  CHECK(over(MeanAbsoluteError({.ignore_index = -100}), p, y).at("mae") == doctest::Approx(3 / 5.));
  // The first output gives 1 - 2 / (8 / 3), the second 1 - 1 / 2.
  CHECK(over(R2Score({.ignore_index = -100}), p, y).at("r2") == doctest::Approx((0.25 + 0.5) / 2));
  const auto level = torch::tensor({-100., 0.});
  CHECK(over(MeanAbsoluteError({.name = "decibels"}), level + 1, level) == etude::Metrics{{"decibels", 1}});
}

TEST_CASE("integers and half precision are summed in double precision") {
  CHECK(over(MeanSquaredError(), torch::tensor({1, 2}), torch::tensor({2, 4})).at("mse") == 2.5);
  const auto half = torch::full({4096}, 0.1).to(torch::kHalf);
  MeanAbsoluteError mae;
  mae.update(half, torch::zeros({4096}));
  CHECK(mae.compute().at("mae") == doctest::Approx(0.0999755859375));
}

TEST_CASE("shapes that only match by broadcasting are refused, naming both") {
  const auto message = "mse: predictions are float32 [3, 2] and labels float32 [3]: must have the same shape";
  CHECK_THROWS_WITH_AS(MeanSquaredError().update(torch::zeros({3, 2}), torch::zeros({3})), message,
                       etude::DataError);
  CHECK_THROWS_AS(R2Score().update(torch::zeros({4}), torch::zeros({3})), etude::DataError);
  CHECK_THROWS_AS(MeanAbsoluteError().update(torch::zeros({1}), torch::zeros({3})), etude::DataError);
}

}  // namespace metrics_regression_examples_test
