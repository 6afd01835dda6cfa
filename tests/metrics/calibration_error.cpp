#include "etude/metrics/calibration_error.hpp"

#include "etude/base/error.hpp"
#include "metrics/reference.hpp"

namespace metrics_calibration_error_test {

using namespace etude::metrics;
using reference::check, reference::over;

constexpr auto name = "calibration_error";

TEST_CASE("the calibration error is torchmetrics', in each norm, for several classes and for two") {
  for (const auto norm : {CalibrationNorm::l1, CalibrationNorm::l2, CalibrationNorm::max}) {
    const CalibrationError of_logits({.bins = 10, .norm = norm}),
        of_probabilities({.bins = 10, .norm = norm, .from_logits = false});
    for (const auto dtype : {torch::kFloat, torch::kDouble}) {
      const auto multi = reference::multi(dtype), binary = reference::binary(dtype);
      const auto labels = reference::tensor(reference::multi_labels);
      const auto key = fmt::format("multi calibration {}", norm);
      check(over(of_logits, multi, labels).at(name), key, 1e-6);
      check(over(of_probabilities, multi.softmax(1), labels).at(name), key, 1e-6);
      check(over(of_logits, binary, reference::tensor(reference::binary_labels)).at(name),
            fmt::format("binary calibration {}", norm), 1e-6);
    }
  }
}

TEST_CASE("a confidence of exactly 1 has its own bin") {
  const auto certain = torch::tensor({1., 1., 0., 0.95, 0.05}).to(torch::kFloat);
  check(over(CalibrationError({.bins = 10, .from_logits = false}), certain, torch::tensor({1, 0, 0, 1, 1}))
            .at(name),
        "certain calibration", 1e-6);
}

TEST_CASE("without labels it is NaN in each norm") {
  for (const auto norm : {CalibrationNorm::l1, CalibrationNorm::l2, CalibrationNorm::max}) {
    CHECK(std::isnan(CalibrationError({.norm = norm}).compute().at(name)));
    CHECK(std::isnan(
        over(CalibrationError({.norm = norm}), torch::zeros({2, 3}), torch::full({2}, -100)).at(name)));
    const auto broken = torch::tensor({reference::nan, 0.5});
    CHECK(std::isnan(over(CalibrationError({.norm = norm}), broken, torch::tensor({0, 1})).at(name)));
  }
}

TEST_CASE("predictions without confidences are refused") {
  CHECK_THROWS_WITH_AS(CalibrationError({.bins = 0}), "bins is 0: must be at least 1", etude::ArgumentError);
  CHECK_THROWS_AS(CalibrationError().update(torch::ones({2}, torch::kLong), torch::ones({2}, torch::kLong)),
                  etude::DataError);
}

}  // namespace metrics_calibration_error_test
