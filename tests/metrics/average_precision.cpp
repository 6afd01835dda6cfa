#include "etude/metrics/average_precision.hpp"

#include "metrics/reference.hpp"

namespace metrics_average_precision_test {

using namespace etude::metrics;
using reference::check, reference::check_each, reference::over;

constexpr auto name = "average_precision";

TEST_CASE("the average precision of each class against the rest, and its averages, are scikit-learn's") {
  const auto labels = reference::tensor(reference::multi_labels);
  for (const auto dtype : {torch::kFloat, torch::kDouble}) {
    const auto logits = reference::multi(dtype);
    check(over(AveragePrecision(), logits, labels).at(name), "multi average_precision macro");
    check(over(AveragePrecision({.average = Average::weighted}), logits, labels).at(name),
          "multi average_precision weighted");
    check_each(over(AveragePrecision({.average = Average::none}), logits, labels),
               "multi average_precision none");
  }
}

TEST_CASE("for two classes it is that of class 1, and equal scores are one threshold") {
  const auto labels = reference::tensor(reference::binary_labels);
  check(over(AveragePrecision(), reference::binary(), labels).at(name), "binary average_precision");
  check(over(AveragePrecision(), reference::binary(torch::kFloat), labels).at(name),
        "binary average_precision");
  check(over(AveragePrecision(), torch::full({5}, 0.5), torch::tensor({0, 1, 0, 1, 0})).at(name),
        "tied average_precision");
}

TEST_CASE("a single class gives scikit-learn's values, and no labels give NaN") {
  const auto scores = torch::tensor({0.1, 0.6, 0.6});
  check(over(AveragePrecision(), scores, torch::ones({3}, torch::kLong)).at(name),
        "positive average_precision");
  check(over(AveragePrecision(), scores, torch::zeros({3}, torch::kLong)).at(name),
        "negative average_precision");
  CHECK(std::isnan(AveragePrecision().compute().at(name)));
  CHECK(std::isnan(over(AveragePrecision(), scores, torch::full({3}, -100)).at(name)));
}

TEST_CASE("a class without labels among several is NaN and left out of averages, as in torchmetrics") {
  const auto p = torch::tensor({{0.7, 0.2, 0.1}, {0.3, 0.4, 0.3}, {0.5, 0.2, 0.3}, {0.6, 0.3, 0.1}});
  const auto y = torch::tensor({0, 1, 1, 1});
  for (const auto average : {Average::macro, Average::weighted})
    check(over(AveragePrecision({.average = average, .from_logits = false}), p, y).at(name),
          fmt::format("absent average_precision {}", average), 1e-6);
  check_each(over(AveragePrecision({.average = Average::none, .from_logits = false}), p, y),
             "absent average_precision none", 1e-6);
}

}  // namespace metrics_average_precision_test
