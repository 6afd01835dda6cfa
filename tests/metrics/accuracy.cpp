#include "etude/metrics/accuracy.hpp"

#include <doctest/doctest.h>

namespace {

double accuracy(torch::Tensor predictions, torch::Tensor labels) {
  return etude::metrics::accuracy({predictions, labels, {}, {}, {}}).at("accuracy");
}

TEST_CASE("the share of labels whose logit is the greatest") {
  const auto logits = torch::tensor({{0.1, 0.9}, {0.8, 0.2}, {0.3, 0.7}, {0.6, 0.4}});
  CHECK(accuracy(logits, torch::tensor({1, 0, 0, 0})) == 0.75);
}

TEST_CASE("classes may lie last or second, and labels of -100 don't count") {
  const auto logits = torch::tensor({{{0., 1.}, {1., 0.}, {0., 1.}}});  // [1, 3, 2]: classes 1, 0, 1
  CHECK(accuracy(logits, torch::tensor({{1, 1, -100}})) == 0.5);
  CHECK(accuracy(logits.transpose(1, 2), torch::tensor({{1, 1, -100}})) == 0.5);
}

TEST_CASE("predictions may be classes already") {
  CHECK(accuracy(torch::tensor({1, 2, 3}), torch::tensor({1, 2, 0})) == doctest::Approx(2 / 3.));
}

TEST_CASE("other shapes are refused with both named") {
  CHECK_THROWS_AS(accuracy(torch::zeros({3, 2}), torch::zeros({4}, torch::kLong)), etude::DataError);
  CHECK_THROWS_AS(accuracy(torch::zeros({3}), torch::zeros({3}, torch::kLong)), etude::DataError);
}

}  // namespace
