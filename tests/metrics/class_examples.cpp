#include "etude/metrics/class_examples.hpp"

#include "etude/base/error.hpp"
#include "etude/metrics/accuracy.hpp"
#include "etude/metrics/auroc.hpp"
#include "etude/metrics/average_precision.hpp"
#include "etude/metrics/calibration_error.hpp"
#include "etude/metrics/confusion_matrix.hpp"
#include "etude/metrics/f_beta.hpp"
#include "etude/metrics/perplexity.hpp"
#include "metrics/reference.hpp"

namespace metrics_class_examples_test {

using namespace etude::metrics;
using etude::DataError, etude::ArgumentError;

constexpr auto nan = reference::nan;

template <class Metric>
double value(Metric metric, const torch::Tensor& predictions, const torch::Tensor& labels) {
  metric.update(predictions, labels);
  return metric.compute().begin()->second;
}

double accuracy(const torch::Tensor& predictions, const torch::Tensor& labels) {
  return etude::metrics::accuracy({predictions, labels, {}, {}, {}}).at("accuracy");
}

torch::Tensor confusion(const torch::Tensor& predictions, const torch::Tensor& labels) {
  ConfusionMatrix matrix;
  matrix.update(predictions, labels);
  return matrix.matrix();
}

// At the threshold 0, the predicted classes are 1 0 1 0 0 1 1 0: two right and one wrong for the label 1,
// three right and two wrong for the label 0. A score of 0 means class 0.
const std::vector<double> single_logits{2, -1, 3, -0.5, -2, 1, 0.25, 0};
const std::vector<std::int64_t> single_labels{1, 0, 1, 1, 0, 0, 0, 0};

struct Form {
  const char* name;
  torch::Tensor predictions, labels;
};

std::vector<Form> forms_of_one_score() {
  const auto p = reference::tensor(single_logits, {8}, torch::kFloat);
  const auto y = reference::tensor(single_labels);
  const auto column = y.view({8, 1}).to(torch::kFloat);
  return {{"[N]", p, y},
          {"[N], labels of BCEWithLogitsLoss", p, y.to(torch::kFloat)},
          {"[N], half precision", p.to(torch::kBFloat16), y},
          {"[N, 1]", p.view({8, 1}), y},
          {"[N, 1], labels bool", p.view({8, 1}), y.to(torch::kBool)},
          {"[N, 1], labels [N, 1] of BCEWithLogitsLoss", p.view({8, 1}), column},
          {"[N, T]", p.view({4, 2}), y.view({4, 2})},
          {"[N, T, 1]", p.view({4, 2, 1}), y.view({4, 2})},
          {"[N, 1, T]", p.view({4, 1, 2}), y.view({4, 2})},
          {"[N, 2], the other logit 0", torch::stack({torch::zeros_like(p), p}, 1), y}};
}

TEST_CASE("every metric of classes takes one logit per label as the score of class 1, in any form") {
  for (const auto& [name, p, y] : forms_of_one_score()) {
    CAPTURE(name);
    CHECK(accuracy(p, y) == doctest::Approx(5 / 8.));
    CHECK(value(Accuracy(), p, y) == doctest::Approx(5 / 8.));
    CHECK(value(Precision(), p, y) == doctest::Approx(2 / 4.));
    CHECK(value(Recall(), p, y) == doctest::Approx(2 / 3.));
    CHECK(value(F1(), p, y) == doctest::Approx(4 / 7.));       // 2 * 1/2 * 2/3 / (1/2 + 2/3)
    CHECK(value(FBeta(2), p, y) == doctest::Approx(5 / 8.));   // 5 * 1/2 * 2/3 / (4 * 1/2 + 2/3)
    CHECK(value(AUROC(), p, y) == doctest::Approx(12 / 15.));  // 2 and 3 exceed all five negatives, -0.5 two
    CHECK(value(AveragePrecision(), p, y) == doctest::Approx((1 + 1 + 3 / 6.) / 3));
    CHECK(torch::equal(confusion(p, y), torch::tensor({{3., 2.}, {1., 2.}}, torch::kDouble)));
  }
}

TEST_CASE("the calibration of one score is that of class 1, and of two scores that of the predicted class") {
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  double of_one = 0, of_both = 0;
  for (const auto x : single_logits) {
    of_one += sigmoid(x);
    of_both += sigmoid(std::abs(x));
  }
  for (const auto& [name, p, y] : forms_of_one_score()) {
    CAPTURE(name);
    const auto two = p.dim() == 2 && p.size(1) == 2 && y.dim() == 1;
    // With one bin, the error is the mean probability minus the frequency of class 1, or minus the accuracy.
    CHECK(value(CalibrationError({.bins = 1}), p, y) ==
          doctest::Approx(std::abs(two ? of_both / 8 - 5 / 8. : of_one / 8 - 3 / 8.)).epsilon(2e-3));
  }
}

TEST_CASE("perplexity and top-k accuracy refuse one score per label by name") {
  for (const auto& [name, p, y] : forms_of_one_score()) {
    if (std::string_view(name).starts_with("[N, 2]")) continue;
    CAPTURE(name);
    CHECK_THROWS_WITH_AS(value(Perplexity(), p, y), doctest::Contains("perplexity: predictions are"),
                         DataError);
    CHECK_THROWS_WITH_AS(value(Accuracy({.top_k = 2}), p, y),
                         doctest::Contains("must be scores of several classes"), DataError);
  }
}

TEST_CASE("one class index per label may have a dimension of 1, as an argmax that keeps it gives") {
  const auto classes = torch::tensor({2, 0, 1, 1}), labels = torch::tensor({2, 0, 1, 0});
  CHECK(accuracy(classes, labels) == 0.75);
  CHECK(accuracy(classes.view({4, 1}), labels) == 0.75);
  CHECK(accuracy(classes.view({2, 2, 1}), labels.view({2, 2})) == 0.75);
  CHECK(value(F1({.average = Average::micro, .num_classes = 3}), classes.view({4, 1}), labels) == 0.75);
}

TEST_CASE("predictions of other shapes and types are refused, with what they are and what is allowed") {
  const auto labels = torch::zeros({4}, torch::kLong);
  for (const auto& predictions :
       {torch::zeros({4, 3}, torch::kLong), torch::zeros({4, 0}), torch::zeros({3, 2}),
        torch::zeros({4, 2, 2}), torch::zeros({4}, torch::kComplexFloat)}) {
    CAPTURE(predictions.sizes());
    CHECK_THROWS_WITH_AS(accuracy(predictions, labels), doctest::Contains("accuracy: predictions are"),
                         DataError);
    CHECK_THROWS_WITH_AS(value(F1(), predictions, labels), doctest::Contains("one score of class 1"),
                         DataError);
  }
  CHECK_THROWS_AS(accuracy(torch::zeros({4}), labels.view({4, 1})), DataError);
}

TEST_CASE("a label that isn't one of the classes is refused by every metric, not counted as wrong") {
  struct Case {
    torch::Tensor predictions, labels;
  };
  const auto one = torch::tensor({2.F, -1.F}), three = torch::eye(3).slice(0, 0, 2);
  for (const auto& [p, y] :
       {Case{one, torch::tensor({1, 2})}, Case{one, torch::tensor({1, -1})},
        Case{one, torch::tensor({1.F, 0.5F})}, Case{one, torch::tensor({1.F, static_cast<float>(nan)})},
        Case{one, torch::tensor({1.F, 1e30F})}, Case{three, torch::tensor({0, 3})},
        Case{three, torch::tensor({0, -1})}}) {
    const auto refused = [&, predictions = p, labels = y](auto metric) {
      CHECK_THROWS_WITH_AS(value(metric, predictions, labels), doctest::Contains("1 examples have a label"),
                           DataError);
    };
    refused(Accuracy());
    refused(Precision());
    refused(Recall());
    refused(F1());
    refused(AUROC());
    refused(AveragePrecision());
    refused(CalibrationError());
    refused(ConfusionMatrix());
    CHECK_THROWS_AS(accuracy(p, y), DataError);
    if (p.dim() == 2) {
      refused(Accuracy({.top_k = 2}));
      refused(Perplexity());
    }
  }
}

TEST_CASE("an example with a NaN among its scores is wrong, whatever its label") {
  struct Case {
    const char* name;
    torch::Tensor predictions, labels;
  };
  const auto three =
      torch::tensor({{5., 0., 0.}, {nan, 0., 0.}, {0., nan, 1.}, {2., 1., nan}}, torch::kFloat);
  const auto one = torch::tensor({2., nan, nan, nan}, torch::kFloat);
  for (const auto& [name, p, y] :
       {Case{"[N]", one, torch::tensor({1, 0, 1, 1})},
        Case{"[N, 1]", one.view({4, 1}), torch::tensor({1, 0, 1, 1})},
        Case{"[N, C]", three, torch::tensor({0, 0, 1, 2})},
        Case{"[N, C], NaN not at the label", three, torch::tensor({0, 1, 2, 0})},
        Case{"[N, C, 1]", three.unsqueeze(-1), torch::tensor({{0}, {0}, {2}, {0}})}}) {
    CAPTURE(name);
    const auto classes = p.numel() == 4 ? 2. : 3.;
    CHECK(accuracy(p, y) == 0.25);
    CHECK(value(Accuracy(), p, y) == 0.25);
    if (classes == 3) CHECK(value(Accuracy({.top_k = 2}), p, y) == 0.25);
    CHECK(value(Accuracy({.from_logits = false, .threshold = 0}), p, y) == 0.25);
    // One prediction, which is right; four labels.
    CHECK(value(Precision({.average = Average::micro}), p, y) == 1);
    CHECK(value(Recall({.average = Average::micro}), p, y) == 0.25);
    CHECK(value(F1({.average = Average::micro}), p, y) == doctest::Approx(2 / 5.));
    const auto refused = doctest::Contains("3 examples have scores without an order: must not be NaN");
    CHECK_THROWS_WITH_AS(value(ConfusionMatrix(), p, y), refused, DataError);
    CHECK_THROWS_WITH_AS(value(AUROC(), p, y), refused, DataError);
    CHECK_THROWS_WITH_AS(value(AveragePrecision({.average = Average::none}), p, y), refused, DataError);
    CHECK(std::isnan(value(CalibrationError(), p, y)));
    if (classes == 3) CHECK(std::isnan(value(Perplexity(), p, y)));
  }
  CHECK(accuracy(torch::full({4, 3}, nan), torch::zeros({4}, torch::kLong)) == 0);
}

TEST_CASE("a NaN in an ignored example doesn't count") {
  const auto p = torch::tensor({{5., 0.}, {nan, 0.}, {0., 1.}}, torch::kFloat);
  const auto y = torch::tensor({0, -100, 1});
  CHECK(accuracy(p, y) == 1);
  CHECK(value(F1(), p, y) == 1);
  CHECK(value(AUROC(), p, y) == 1);
  CHECK(value(AveragePrecision(), p, y) == 1);
  CHECK(torch::equal(confusion(p, y), torch::eye(2, torch::kDouble)));
  CHECK(std::isfinite(value(CalibrationError(), p, y)));
  CHECK(std::isfinite(value(Perplexity(), p, y)));
}

TEST_CASE("separate batches of an evaluation give the same accuracy") {
  const etude::EvalPrediction first{torch::tensor({2., -1.}), torch::tensor({1, 1}), {}, {}, {}};
  const etude::EvalPrediction second{torch::tensor({{1.}}), torch::tensor({1}), {}, {}, {}};
  etude::EvalPrediction both;
  both.batches = {first, second};
  CHECK(etude::metrics::accuracy(both).at("accuracy") == doctest::Approx(2 / 3.));
}

TEST_CASE("a threshold that is no probability is refused") {
  const auto p = torch::tensor({2., -1.}), y = torch::tensor({1, 0});
  for (const auto threshold : {-0.1, 1.5, 50., nan}) {
    CHECK_THROWS_WITH_AS(value(Accuracy({.threshold = threshold}), p, y),
                         doctest::Contains("must be a probability"), ArgumentError);
    CHECK_THROWS_AS(value(F1({.threshold = threshold}), p, y), ArgumentError);
    CHECK_THROWS_AS(value(ConfusionMatrix({.threshold = threshold}), p, y), ArgumentError);
  }
  CHECK(value(Accuracy({.threshold = 0}), p, y) == 0.5);  // all are class 1
  CHECK(value(Accuracy({.threshold = 1}), p, y) == 0.5);  // none is
}

}  // namespace metrics_class_examples_test
