#include "etude/metrics/streaming_metric.hpp"

#include <ATen/record_function.h>

#include "etude/base/error.hpp"
#include "etude/metrics/accuracy.hpp"
#include "etude/metrics/auroc.hpp"
#include "etude/metrics/average_precision.hpp"
#include "etude/metrics/calibration_error.hpp"
#include "etude/metrics/confusion_matrix.hpp"
#include "etude/metrics/f_beta.hpp"
#include "etude/metrics/mean_absolute_error.hpp"
#include "etude/metrics/mean_squared_error.hpp"
#include "etude/metrics/perplexity.hpp"
#include "etude/metrics/r2_score.hpp"
#include "metrics/reference.hpp"

namespace metrics_streaming_metric_test {

// Tests the requirements of every streaming metric.

using namespace etude::metrics;

/// Predictions and labels that suit every metric; some labels must be ignored.
struct Examples {
  torch::Tensor predictions, labels;
  Examples part(std::int64_t begin, std::int64_t end) const {
    return {predictions.slice(0, begin, end), labels.slice(0, begin, end)};
  }
};

template <class M>
Examples examples_for() {
  if constexpr (std::same_as<M, MeanSquaredError> || std::same_as<M, MeanAbsoluteError> ||
                std::same_as<M, R2Score>)
    return {reference::tensor(reference::outputs, {-1, 3}), reference::tensor(reference::targets, {-1, 3})};
  else
    return {reference::multi(), reference::tensor(reference::multi_labels)};
}

template <class M>
M metric() {
  if constexpr (std::same_as<M, FBeta>)
    return FBeta(0.5, {.average = Average::none});
  else
    return M();
}

template <class M>
void add(M& metric, const Examples& examples) {
  metric.update(examples.predictions, examples.labels);
}

template <class M>
M over(const Examples& examples) {
  auto result = metric<M>();
  add(result, examples);
  return result;
}

void check_same(const etude::Metrics& a, const etude::Metrics& b) {
  REQUIRE(a.size() == b.size());
  REQUIRE_FALSE(a.empty());
  for (const auto& metric : a) {
    const auto& [name, value] = metric;
    CAPTURE(metric.first);
    CHECK(std::isfinite(value));
    CHECK(value == doctest::Approx(b.at(name)).epsilon(1e-12));
  }
}

/// Records the LibTorch operators that run while it lives.
class Operators {
 public:
  Operators()
      : handle_(at::addThreadLocalCallback(
            at::RecordFunctionCallback(note).scopes({at::RecordScope::FUNCTION}))) {
    names().clear();
  }
  ~Operators() { at::removeCallback(handle_); }
  static std::vector<std::string>& names() {
    static std::vector<std::string> all;
    return all;
  }
  static bool ran(const std::string& name) { return std::ranges::find(names(), name) != names().end(); }

 private:
  static std::unique_ptr<at::ObserverContext> note(const at::RecordFunction& function) {
    names().emplace_back(function.name());
    return nullptr;
  }
  at::CallbackHandle handle_;
};

TEST_CASE_TEMPLATE("a streaming metric", M, Accuracy, Precision, Recall, FBeta, F1, ConfusionMatrix, AUROC,
                   AveragePrecision, MeanSquaredError, MeanAbsoluteError, R2Score, Perplexity,
                   CalibrationError) {
  static_assert(StreamingMetric<M>);
  const auto examples = examples_for<M>();
  const auto size = examples.labels.size(0);
  const auto whole = over<M>(examples).compute();

  SUBCASE("gives the same result over batches of unequal sizes, empty ones too") {
    auto streamed = metric<M>();
    for (const auto& [begin, end] : {std::pair{0L, 5L}, {5L, 5L}, {5L, 6L}, {6L, 29L}, {29L, size}})
      add(streamed, examples.part(begin, end));
    check_same(streamed.compute(), whole);
    check_same(streamed.compute(), whole);  // computing changes nothing
  }
  SUBCASE("merges two halves into the whole, in either order, and an empty one too") {
    auto first = over<M>(examples.part(0, 11));
    const auto second = over<M>(examples.part(11, size));
    auto turned = second;
    turned.merge(first);
    check_same(turned.compute(), whole);
    first.merge(metric<M>());
    first.merge(second);
    check_same(first.compute(), whole);
    auto empty = metric<M>();
    empty.merge(first);
    check_same(empty.compute(), whole);
  }
  SUBCASE("doubles when merged with itself") {
    auto twice = over<M>(examples);
    twice.merge(twice);
    const Examples both{torch::cat({examples.predictions, examples.predictions}),
                        torch::cat({examples.labels, examples.labels})};
    check_same(twice.compute(), over<M>(both).compute());
  }
  SUBCASE("has a state of tensors that can be summed and concatenated elsewhere") {
    auto first = over<M>(examples.part(0, 11)).state();
    const auto second = over<M>(examples.part(11, size)).state();
    REQUIRE(first.size() == second.size());
    for (std::size_t i = 0; i < first.size(); ++i) {
      CHECK(first[i].name == second[i].name);
      first[i].value = first[i].merging == Merging::sum ? first[i].value + second[i].value
                                                        : torch::cat({first[i].value, second[i].value});
    }
    auto restored = over<M>(examples.part(3, 9));
    restored.load_state(first);
    check_same(restored.compute(), whole);
  }
  SUBCASE("forgets everything when it is reset") {
    auto reset = over<M>(examples.part(0, 20));
    reset.reset();
    CHECK(reset.state().empty());
    add(reset, examples);
    check_same(reset.compute(), whole);
  }
  SUBCASE("shares nothing with its copies") {
    auto original = over<M>(examples.part(0, 11));
    auto copy = original;
    add(copy, examples.part(11, size));
    check_same(copy.compute(), whole);
    add(original, examples.part(11, size));
    check_same(original.compute(), whole);
  }
  SUBCASE("doesn't synchronise with the device when it is updated") {
    auto updated = over<M>(examples.part(0, 11));
    {
      const Operators counting;
      add(updated, examples.part(11, size));
    }
    CHECK_FALSE(Operators::names().empty());
    CHECK_FALSE(Operators::ran("aten::_local_scalar_dense"));
    CHECK_FALSE(Operators::ran("aten::nonzero"));
    {
      const Operators counting;
      (void)updated.compute();
    }
    CHECK(Operators::ran("aten::_local_scalar_dense"));
  }
  SUBCASE("keeps no graph of gradients") {
    const Examples traced{examples.predictions.clone().requires_grad_(), examples.labels};
    const auto state = over<M>(traced).state();
    REQUIRE_FALSE(state.empty());
    for (const auto& part : state) CHECK_FALSE(part.value.requires_grad());
  }
  SUBCASE("takes half precision") {
    const auto half = examples.predictions.to(torch::kHalf);
    check_same(over<M>({half, examples.labels}).compute(),
               over<M>({half.to(torch::kFloat), examples.labels}).compute());
  }
  SUBCASE("refuses a different number of labels, naming both shapes") {
    auto refusing = metric<M>();
    try {
      add(refusing, {examples.predictions, examples.labels.slice(0, 1)});
      FAIL("took them");
    } catch (const etude::DataError& e) {
      CHECK(std::string(e.what()).find(etude::describe(examples.predictions)) != std::string::npos);
      CHECK(std::string(e.what()).find(etude::describe(examples.labels.slice(0, 1))) != std::string::npos);
    }
  }
}

TEST_CASE("states of different shapes can't be merged") {
  F1 three, four;
  three.update(torch::zeros({2, 3}), torch::tensor({0, 1}));
  four.update(torch::zeros({2, 4}), torch::tensor({0, 1}));
  CHECK_THROWS_WITH_AS(
      three.merge(four),
      "the state 'counts' is int64 [3, 4] but the added value is int64 [3, 5]: must have the same shape",
      etude::DataError);
  CHECK_THROWS_AS(three.load_state({{"counts", {}, Merging::sum}}), etude::DataError);
}

}  // namespace metrics_streaming_metric_test
