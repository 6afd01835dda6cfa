#include "etude/metrics/accuracy.hpp"

#include "etude/base/error.hpp"
#include "metrics/reference.hpp"

namespace metrics_accuracy_test {

double accuracy(torch::Tensor predictions, torch::Tensor labels) {
  return etude::metrics::accuracy({predictions, labels, {}, {}, {}}).at("accuracy");
}

TEST_CASE("accuracy is the share of labels with the greatest logit") {
  const auto logits = torch::tensor({{0.1, 0.9}, {0.8, 0.2}, {0.3, 0.7}, {0.6, 0.4}});
  CHECK(accuracy(logits, torch::tensor({1, 0, 0, 0})) == 0.75);
}

TEST_CASE("classes may be the last or second dimension, and labels of -100 don't count") {
  const auto logits = torch::tensor({{{0., 1.}, {1., 0.}, {0., 1.}}});  // [1, 3, 2]: classes 1, 0, 1
  CHECK(accuracy(logits, torch::tensor({{1, 1, -100}})) == 0.5);
  CHECK(accuracy(logits.transpose(1, 2), torch::tensor({{1, 1, -100}})) == 0.5);
}

TEST_CASE("predictions may be classes already") {
  CHECK(accuracy(torch::tensor({1, 2, 3}), torch::tensor({1, 2, 0})) == doctest::Approx(2 / 3.));
}

TEST_CASE("other shapes are refused, naming both") {
  CHECK_THROWS_AS(accuracy(torch::zeros({3, 2}), torch::zeros({4}, torch::kLong)), etude::DataError);
  CHECK_THROWS_AS(accuracy(torch::zeros({3, 2}, torch::kLong), torch::zeros({3}, torch::kLong)),
                  etude::DataError);
}

using etude::metrics::Accuracy;
using reference::check, reference::over;

TEST_CASE("streaming accuracy is scikit-learn's, for classes, for one logit of two classes, and for top k") {
  for (const auto dtype : {torch::kFloat, torch::kDouble}) {
    const auto logits = reference::multi(dtype), labels = reference::tensor(reference::multi_labels);
    check(over(Accuracy(), logits, labels).at("accuracy"), "multi accuracy");
    check(over(Accuracy(), logits.argmax(1), labels).at("accuracy"), "multi accuracy");
    check(over(Accuracy({.top_k = 2}), logits, labels).at("top_2_accuracy"), "multi top 2");
    check(over(Accuracy({.top_k = 3, .name = "three"}), logits, labels).at("three"), "multi top 3");
    CHECK(over(Accuracy({.top_k = 9}), logits, labels).at("top_9_accuracy") == 1);
    check(over(Accuracy(), reference::binary(dtype), reference::tensor(reference::binary_labels))
              .at("accuracy"),
          "binary accuracy");
  }
}

TEST_CASE("the earlier class wins among equal scores") {
  const auto right = [](torch::Tensor scores, std::int64_t label) {
    Accuracy accuracy({.top_k = 2});
    accuracy.update(scores.unsqueeze(0), torch::tensor({label}));
    return accuracy.compute().at("top_2_accuracy");
  };
  const auto tied = torch::zeros({3});
  CHECK(right(tied, 0) == 1);
  CHECK(right(tied, 1) == 1);
  CHECK(right(tied, 2) == 0);
}

TEST_CASE("streaming accuracy takes classes as the last or second dimension, and leaves -100 out") {
  const auto logits = torch::tensor({{{0., 1.}, {1., 0.}, {0., 1.}}});  // [1, 3, 2]: classes 1, 0, 1
  CHECK(over(Accuracy(), logits, torch::tensor({{1, 1, -100}})).at("accuracy") == 0.5);
  CHECK(over(Accuracy(), logits.transpose(1, 2), torch::tensor({{1, 1, -100}})).at("accuracy") == 0.5);
  CHECK(std::isnan(over(Accuracy(), logits, torch::full({1, 3}, -100)).at("accuracy")));
  CHECK(std::isnan(Accuracy().compute().at("accuracy")));
}

TEST_CASE("streaming accuracy refuses what it can't count") {
  CHECK_THROWS_AS(Accuracy({.top_k = 0}), etude::ArgumentError);
  CHECK_THROWS_AS(Accuracy().update(torch::zeros({3, 2}), torch::zeros({4}, torch::kLong)), etude::DataError);
  CHECK_THROWS_AS(Accuracy({.top_k = 2}).update(torch::zeros({4}), torch::zeros({4}, torch::kLong)),
                  etude::DataError);
}

}  // namespace metrics_accuracy_test
