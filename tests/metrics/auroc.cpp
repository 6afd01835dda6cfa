#include "etude/metrics/auroc.hpp"

#include "etude/base/error.hpp"
#include "metrics/reference.hpp"

namespace metrics_auroc_test {

using namespace etude::metrics;
using reference::check, reference::check_each, reference::over;

TEST_CASE("the area of each class against the rest, and its averages, are scikit-learn's") {
  const auto labels = reference::tensor(reference::multi_labels);
  for (const auto dtype : {torch::kFloat, torch::kDouble}) {
    const auto logits = reference::multi(dtype);
    check(over(AUROC(), logits, labels).at("auroc"), "multi auroc macro");
    check(over(AUROC({.average = Average::weighted}), logits, labels).at("auroc"), "multi auroc weighted");
    check_each(over(AUROC({.average = Average::none}), logits, labels), "multi auroc none");
    check(over(AUROC({.from_logits = false}), logits.softmax(1), labels).at("auroc"), "multi auroc macro");
  }
}

TEST_CASE("for two classes it is the area of class 1, in any form of scores, with ties counting half") {
  const auto labels = reference::tensor(reference::binary_labels);
  for (const auto dtype : {torch::kFloat, torch::kDouble}) {
    const auto logits = reference::binary(dtype);
    const auto both = torch::stack({torch::zeros_like(logits), logits}, 1);
    check(over(AUROC(), logits, labels).at("auroc"), "binary auroc");
    check(over(AUROC(), logits.sigmoid().unsqueeze(1), labels).at("auroc"), "binary auroc");
    check(over(AUROC(), both, labels).at("auroc"), "binary auroc");
    check(over(AUROC({.average = Average::macro}), logits, labels).at("auroc"), "binary auroc");
  }
  check(over(AUROC(), torch::full({4}, 0.5), torch::tensor({0, 1, 0, 1})).at("auroc"), "tied auroc");
}

TEST_CASE(
    "scores that differ only in the last digit are ranked, and so are probabilities too small for float32") {
  const auto close = torch::tensor({0.5, std::nextafter(0.5, 1.)}, torch::kDouble);
  CHECK(over(AUROC(), close, torch::tensor({0, 1})).at("auroc") == 1);
  const auto small = torch::tensor({{0.F, -300.F, 0.F}, {0.F, -200.F, 0.F}, {9.F, -400.F, 0.F}});
  CHECK(over(AUROC({.average = Average::none}), small, torch::tensor({0, 1, 2})).at("auroc_1") == 1);
}

TEST_CASE("it is NaN where only one class has labels, or nothing was counted") {
  const auto scores = torch::tensor({0.1, 0.6, 0.6});
  check(over(AUROC(), scores, torch::ones({3}, torch::kLong)).at("auroc"), "positive auroc");
  check(over(AUROC(), scores, torch::zeros({3}, torch::kLong)).at("auroc"), "negative auroc");
  CHECK(std::isnan(AUROC().compute().at("auroc")));
  CHECK(std::isnan(over(AUROC(), scores, torch::full({3}, -100)).at("auroc")));
}

TEST_CASE("a class without labels is left out of averages") {
  const auto p = torch::tensor({{0.7, 0.2, 0.1}, {0.3, 0.4, 0.3}, {0.5, 0.2, 0.3}, {0.6, 0.3, 0.1}});
  const auto y = torch::tensor({0, 1, 1, 1});
  // Class 0: 0.7 is greater than all three. Class 1: 0.4 and 0.3 are greater than 0.2; 0.2 ties.
  const auto each = over(AUROC({.average = Average::none, .from_logits = false}), p, y);
  CHECK(each.at("auroc_0") == 1);
  CHECK(each.at("auroc_1") == doctest::Approx(2.5 / 3));
  CHECK(std::isnan(each.at("auroc_2")));
  CHECK(over(AUROC({.from_logits = false}), p, y).at("auroc") == doctest::Approx((1 + 2.5 / 3) / 2));
  CHECK(over(AUROC({.average = Average::weighted, .from_logits = false}), p, y).at("auroc") ==
        doctest::Approx((1 + 3 * 2.5 / 3) / 4));
}

TEST_CASE("scores that can't be ranked are refused") {
  CHECK_THROWS_WITH_AS(AUROC({.average = Average::micro}), doctest::Contains("average of auroc is micro"),
                       etude::ArgumentError);
  CHECK_THROWS_WITH_AS(AUROC().update(torch::ones({2}, torch::kLong), torch::ones({2}, torch::kLong)),
                       doctest::Contains("must be scores to rank, not classes"), etude::DataError);
  CHECK_THROWS_AS(over(AUROC(), torch::zeros({2}), torch::tensor({0, 2})), etude::DataError);
}

}  // namespace metrics_auroc_test
