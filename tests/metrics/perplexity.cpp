#include "etude/metrics/perplexity.hpp"

#include "etude/base/error.hpp"
#include "metrics/reference.hpp"

namespace metrics_perplexity_test {

using etude::metrics::Perplexity;
using reference::check, reference::over;

TEST_CASE("perplexity is torchmetrics', over all tokens instead of batches, without labels of -100") {
  const auto labels = reference::tensor(reference::multi_labels);
  for (const auto& [dtype, tolerance] : {std::pair{torch::kDouble, 1e-9}, std::pair{torch::kFloat, 1e-6}}) {
    const auto logits = reference::multi(dtype);
    check(over(Perplexity(), logits, labels).at("perplexity"), "multi perplexity", tolerance);
    check(over(Perplexity({.from_logits = false}), logits.softmax(1), labels).at("perplexity"),
          "multi perplexity", tolerance);
    const auto sequences = logits.reshape({6, 10, 4});
    check(over(Perplexity(), sequences, labels.reshape({6, 10})).at("perplexity"), "multi perplexity",
          tolerance);
    check(over(Perplexity(), sequences.transpose(1, 2), labels.reshape({6, 10})).at("perplexity"),
          "multi perplexity", tolerance);
  }
}

TEST_CASE("the perplexity of a uniform model is the number of classes") {
  CHECK(over(Perplexity(), torch::zeros({3, 50}), torch::tensor({1, 2, 3})).at("perplexity") ==
        doctest::Approx(50));
}

TEST_CASE("classes masked with -inf don't contribute") {
  const auto masked = torch::tensor({{0.F, 0.F, -INFINITY}});
  CHECK(over(Perplexity(), masked, torch::tensor({1})).at("perplexity") == doctest::Approx(2));
  CHECK(over(Perplexity(), masked, torch::tensor({2})).at("perplexity") == static_cast<double>(INFINITY));
}

TEST_CASE("without labels it is NaN, and a NaN counts only if it has a label") {
  CHECK(std::isnan(Perplexity().compute().at("perplexity")));
  CHECK(std::isnan(over(Perplexity(), torch::zeros({2, 3}), torch::full({2}, -100)).at("perplexity")));
  const auto broken = torch::tensor({{reference::nan, 0.}, {0., 0.}});
  CHECK(std::isnan(over(Perplexity(), broken, torch::tensor({0, 1})).at("perplexity")));
  CHECK(over(Perplexity(), broken, torch::tensor({-100, 1})).at("perplexity") == doctest::Approx(2));
}

TEST_CASE("labels that aren't classes and predictions that aren't scores are refused") {
  CHECK_THROWS_AS(over(Perplexity(), torch::zeros({2, 3}), torch::tensor({0, 3})), etude::DataError);
  CHECK_THROWS_AS(Perplexity().update(torch::zeros({2}), torch::zeros({2}, torch::kLong)), etude::DataError);
  CHECK_THROWS_AS(Perplexity().update(torch::zeros({2, 3}), torch::zeros({3}, torch::kLong)),
                  etude::DataError);
}

}  // namespace metrics_perplexity_test
