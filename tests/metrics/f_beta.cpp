#include "etude/metrics/f_beta.hpp"

#include "etude/base/error.hpp"
#include "metrics/reference.hpp"

namespace metrics_f_beta_test {

using namespace etude::metrics;
using reference::check, reference::check_each, reference::over;

const std::vector<Average> averages{Average::micro, Average::macro, Average::weighted, Average::none};

/// Compares all four metrics, with all averages, with the values stored for `name`.
void check_all(const std::string& name, const torch::Tensor& predictions, const torch::Tensor& labels,
               std::optional<std::int64_t> num_classes) {
  for (const auto average : averages) {
    const ClassMetricOptions options{.average = average, .num_classes = num_classes};
    const auto compare = [&](const etude::Metrics& metrics, const std::string& metric) {
      const auto key = fmt::format("{} {} {}", name, metric, average);
      if (average == Average::none)
        check_each(metrics, key);
      else
        check(metrics.begin()->second, key);
    };
    compare(over(Precision(options), predictions, labels), "precision");
    compare(over(Recall(options), predictions, labels), "recall");
    compare(over(F1(options), predictions, labels), "f1");
    compare(over(FBeta(0.5, options), predictions, labels), "f0.5");
  }
}

TEST_CASE("precision, recall and F of several classes are scikit-learn's, for each average and dtype") {
  const auto labels = reference::tensor(reference::multi_labels);
  check_all("multi", reference::multi(torch::kDouble), labels, {});
  check_all("multi", reference::multi(torch::kFloat), labels, 4);
  check_all("multi", reference::multi().argmax(1), labels, 4);
}

TEST_CASE("classes without labels, without predictions or without both count as in scikit-learn") {
  check_all("gaps", reference::tensor(reference::gaps_predicted), reference::tensor(reference::gaps_labels),
            4);
  check_all("one_class", torch::ones({5}, torch::kLong), torch::ones({5}, torch::kLong), 3);
  check_all("all_wrong", torch::ones({5}, torch::kLong), torch::zeros({5}, torch::kLong), 3);
}

TEST_CASE("for two classes it is that of class 1, unless an average is requested") {
  const auto labels = reference::tensor(reference::binary_labels);
  for (const auto dtype : {torch::kFloat, torch::kDouble}) {
    const auto logits = reference::binary(dtype);
    check_all("binary", logits, labels, {});
    check(over(Precision(), logits, labels).at("precision"), "binary precision");
    check(over(Recall(), logits.unsqueeze(1), labels).at("recall"), "binary recall");
    check(over(F1(), logits, labels.to(dtype)).at("f1"), "binary f1");
    check(over(F1(), torch::stack({-logits, logits}, 1), labels).at("f1"), "binary f1");
    check(over(F1({.threshold = 0.7}), logits, labels).at("f1"), "binary f1 above 0.7");
    check(over(F1({.from_logits = false, .threshold = 0.7}), logits.sigmoid(), labels).at("f1"),
          "binary f1 above 0.7");
  }
}

TEST_CASE("it is 0 if nothing was counted") {
  CHECK(F1().compute() == etude::Metrics{{"f1", 0}});
  CHECK(over(Recall(), torch::zeros({3, 4}), torch::full({3}, -100)).at("recall") == 0);
  F1 f1;
  f1.update(torch::zeros({0, 4}), torch::zeros({0}, torch::kLong));
  CHECK(f1.compute().at("f1") == 0);
}

TEST_CASE("ignore_index may be another label, or unset") {
  const auto predicted = torch::tensor({0, 1, 1}), labels = torch::tensor({0, 1, 0});
  CHECK(over(Precision({.num_classes = 2, .ignore_index = 0}), predicted, labels).at("precision") == 1);
  CHECK(over(Precision({.num_classes = 2, .ignore_index = {}}), predicted, labels).at("precision") == 0.5);
}

TEST_CASE("a metric is reported under the name it is given") {
  CHECK(F1({.name = "mine"}).compute().contains("mine"));
  CHECK(over(F1({.average = Average::none, .name = "f"}), torch::eye(3), torch::arange(3)) ==
        etude::Metrics{{"f_0", 1}, {"f_1", 1}, {"f_2", 1}});
}

TEST_CASE("labels that aren't classes are reported when the metric is computed") {
  for (const std::int64_t label : {4, -1}) {
    F1 f1;
    f1.update(torch::zeros({2, 4}), torch::tensor({std::int64_t{0}, label}));
    CHECK_THROWS_WITH_AS(f1.compute(), doctest::Contains("1 examples have a label"), etude::DataError);
  }
  F1 soft;
  soft.update(torch::zeros({2}), torch::tensor({0.F, 0.3F}));
  CHECK_THROWS_AS(soft.compute(), etude::DataError);
}

TEST_CASE("options and shapes that can't be honoured are refused by name") {
  CHECK_THROWS_WITH_AS(FBeta(-1), "beta is -1: must be at least 0", etude::ArgumentError);
  CHECK_THROWS_WITH_AS(F1().update(torch::ones({2}, torch::kLong), torch::ones({2}, torch::kLong)),
                       "num_classes of f1 is not set: it is required if predictions are classes",
                       etude::ArgumentError);
  CHECK_THROWS_WITH_AS(F1({.num_classes = 3}).update(torch::ones({2, 4}), torch::ones({2}, torch::kLong)),
                       "f1: predictions are scores of 4 classes: must be num_classes, 3", etude::DataError);
  CHECK_THROWS_WITH_AS(F1().update(torch::zeros({3, 2}), torch::zeros({4}, torch::kLong)),
                       doctest::Contains("predictions are float32 [3, 2] and labels int64 [4]"),
                       etude::DataError);
  F1 binary({.average = Average::binary});
  binary.update(torch::eye(3), torch::arange(3));
  CHECK_THROWS_WITH_AS(binary.compute(), doctest::Contains("average is binary and there are 3 classes"),
                       etude::ArgumentError);
}

}  // namespace metrics_f_beta_test
