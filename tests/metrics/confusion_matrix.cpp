#include "etude/metrics/confusion_matrix.hpp"

#include "etude/base/error.hpp"
#include "metrics/reference.hpp"

namespace metrics_confusion_matrix_test {

using namespace etude::metrics;
using reference::check_each, reference::over;

TEST_CASE("confusion matrices are scikit-learn's, as counts and as shares") {
  for (const auto normalize :
       {Normalization::none, Normalization::labels, Normalization::predictions, Normalization::all}) {
    const auto key = fmt::format("confusion {}", normalize);
    const ConfusionMatrix inferred({.normalize = normalize}),
        reported({.num_classes = 4, .normalize = normalize});
    const auto labels = reference::tensor(reference::multi_labels);
    check_each(over(inferred, reference::multi(), labels), "multi " + key);
    check_each(over(reported, reference::multi(torch::kFloat).argmax(1), labels), "multi " + key);
    check_each(over(reported, reference::tensor(reference::gaps_predicted),
                    reference::tensor(reference::gaps_labels)),
               "gaps " + key);
    check_each(over(inferred, reference::binary(), reference::tensor(reference::binary_labels)),
               "binary " + key);
  }
}

TEST_CASE("rows are labels and columns predictions") {
  ConfusionMatrix matrix({.num_classes = 2});
  matrix.update(torch::tensor({1, 1, 0}), torch::tensor({0, 0, 0}));
  CHECK(torch::equal(matrix.matrix(), torch::tensor({{1., 2.}, {0., 0.}})));
  CHECK(matrix.compute().at("confusion_0_1") == 2);
}

TEST_CASE("the matrix is missing before the first batch, and zero when nothing was counted") {
  ConfusionMatrix matrix({.normalize = Normalization::all});
  CHECK(matrix.compute().empty());
  CHECK_FALSE(matrix.matrix().defined());
  matrix.update(torch::eye(2), torch::full({2}, -100));
  CHECK(torch::equal(matrix.matrix(), torch::zeros({2, 2}, torch::kDouble)));
}

TEST_CASE("a predicted class that doesn't exist is reported") {
  ConfusionMatrix matrix({.num_classes = 2});
  matrix.update(torch::tensor({2, 0}), torch::tensor({0, 0}));
  CHECK_THROWS_AS(matrix.compute(), etude::DataError);
}

}  // namespace metrics_confusion_matrix_test
