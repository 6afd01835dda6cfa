#include "etude/metrics/streaming.hpp"

#include "common/toy.hpp"
#include "etude/base/error.hpp"
#include "etude/metrics/auroc.hpp"
#include "etude/metrics/f_beta.hpp"
#include "etude/metrics/mean_absolute_error.hpp"
#include "etude/metrics/mean_squared_error.hpp"
#include "metrics/reference.hpp"

namespace metrics_streaming_test {

using namespace etude::metrics;

/// The line predicts 0, and the targets are 1, 1 + 2/n, 1 + 4/n, ...
etude::TrainerOptions evaluation() {
  auto options = toy::options(toy::arguments(), 1, 10);
  options.args.per_device_eval_batch_size = 4;
  options.compute_metrics = streaming(MeanAbsoluteError(), MeanSquaredError());
  return options;
}
constexpr double mae = 1.9, mse = 3.94;  // Means of 1 + i/5 and its square, i = 0..9.

void check_metrics(const etude::Metrics& metrics) {
  CHECK(metrics.at("eval_mae") == doctest::Approx(mae).epsilon(1e-6));
  CHECK(metrics.at("eval_mse") == doctest::Approx(mse).epsilon(1e-6));
}

TEST_CASE(
    "several metrics form one compute_metrics, over whole evaluations or batch by batch, reset each time") {
  for (const bool by_batch : {false, true})
    for (const bool concatenated : {true, false}) {
      auto options = evaluation();
      options.args.batch_eval_metrics = by_batch;
      options.args.eval_do_concat_batches = concatenated;
      etude::Trainer trainer(options);
      check_metrics(trainer.evaluate());
      check_metrics(trainer.evaluate());
    }
}

TEST_CASE("an aborted evaluation leaves nothing for the next") {
  struct Breaks {
    void on(const etude::PredictionStepBegin&) {
      if (++seen_ == 2) throw std::runtime_error("broken");
    }
    int seen_ = 0;
  };
  auto options = evaluation();
  options.args.batch_eval_metrics = true;
  etude::Trainer<Breaks> trainer(options);
  CHECK_THROWS_WITH(trainer.evaluate(), "broken");
  check_metrics(trainer.evaluate());
}

TEST_CASE("several metrics combine into a streaming metric") {
  using Both = Streaming<AUROC, F1>;
  static_assert(StreamingMetric<Both>);
  const auto logits = reference::binary(), labels = reference::tensor(reference::binary_labels);
  Both first, second, restored;
  first.update(logits.slice(0, 0, 11), labels.slice(0, 0, 11));
  second.update(logits.slice(0, 11), labels.slice(0, 11));
  first.merge(second);
  restored.load_state(first.state());
  for (const auto& metrics : {first.compute(), restored.compute()}) {
    reference::check(metrics.at("auroc"), "binary auroc");
    reference::check(metrics.at("f1"), "binary f1");
  }
  CHECK(first.state().back().name == "1.counts");
}

TEST_CASE("two metrics with the same name are refused, and work under two names") {
  const auto predictions = torch::eye(3), labels = torch::arange(3);
  CHECK_THROWS_WITH_AS(streaming(F1(), F1({.average = Average::micro})).compute(),
                       "two metrics are named 'f1': must be given different names", etude::ArgumentError);
  auto both = streaming(F1(), F1({.average = Average::micro, .name = "f1_micro"}));
  both.update(predictions, labels);
  CHECK(both.compute() == etude::Metrics{{"f1", 1}, {"f1_micro", 1}});
}

TEST_CASE("predictions of several tensors are refused") {
  auto metric = streaming(MeanSquaredError());
  const auto one = torch::ones({2});
  CHECK_THROWS_AS(
      metric({.predictions = {one, one}, .label_ids = one, .inputs = {}, .losses = {}, .batches = {}}),
      etude::DataError);
}

}  // namespace metrics_streaming_test
