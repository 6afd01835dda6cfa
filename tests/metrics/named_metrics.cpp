#include "etude/metrics/named_metrics.hpp"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <string>
#include <vector>

#include "common/fault_of.hpp"
#include "etude/base/error.hpp"

namespace metrics_named_metrics_test {

etude::EvalPrediction prediction(const torch::Tensor& outputs, const torch::Tensor& labels) {
  etude::EvalPrediction result;
  result.predictions = outputs;
  result.label_ids = labels;
  return result;
}

TEST_CASE("metrics are found by their names, and computed together") {
  // Three of four classes are right; the errors are 0, 1, 2.
  const auto scores = torch::tensor({{1.0f, 0.0f}, {0.0f, 1.0f}, {1.0f, 0.0f}, {1.0f, 0.0f}});
  const auto classes = etude::named_metrics({"accuracy", "precision"}, false);
  const auto of_classes = classes(prediction(scores, torch::tensor({0, 1, 0, 1})));
  CHECK(of_classes.size() == 2);
  CHECK(of_classes.at("accuracy") == doctest::Approx(0.75));
  const auto numbers = etude::named_metrics({"mae", "mse"}, false);
  const auto of_numbers =
      numbers(prediction(torch::tensor({1.0f, 2.0f, 3.0f}), torch::tensor({1.0f, 1.0f, 1.0f})));
  CHECK(of_numbers.at("mae") == doctest::Approx(1));
  CHECK(of_numbers.at("mse") == doctest::Approx(5.0 / 3));
  CHECK_FALSE(etude::named_metrics({}, false));
}

TEST_CASE("the name of every known metric is accepted, and no other") {
  for (const auto name : etude::known_metrics)
    CHECK_MESSAGE(etude::named_metrics({std::string(name)}, false), std::string(name));
  CHECK(toy::contains(toy::fault_of<etude::ArgumentError>([] {
                        etude::named_metrics({"mae", "acuracy"}, false);
                      }),
                      "compute_metrics has 'acuracy': must be among accuracy, top_5_accuracy"));
  CHECK(toy::contains(toy::fault_of<etude::ArgumentError>([] { etude::named_metrics({"acuracy"}, false); }),
                      "did you mean 'accuracy'?"));
}

TEST_CASE("scores of a language model are compared with the next labels") {
  // The scores of position i are for the label of position i + 1.
  const auto scores = torch::tensor({1.0f, 0.0f, 0.0f, 1.0f, 0.0f, 1.0f}).view({1, 3, 2});
  const auto labels = torch::tensor({1, 0, 1}).view({1, 3});
  CHECK(etude::named_metrics({"accuracy"}, true)(prediction(scores, labels)).at("accuracy") ==
        doctest::Approx(1));
  CHECK(etude::named_metrics({"accuracy"}, false)(prediction(scores, labels)).at("accuracy") ==
        doctest::Approx(1.0 / 3));
}

}  // namespace metrics_named_metrics_test
