#include "etude/callbacks/metric_callback.hpp"

#include <doctest/doctest.h>

#include "common/toy.hpp"
#include "etude/metrics/mean_absolute_error.hpp"
#include "etude/metrics/mean_squared_error.hpp"
#include "etude/metrics/r2_score.hpp"

namespace callbacks_metric_callback_test {

using namespace etude::metrics;
using Errors = etude::MetricCallback<MeanAbsoluteError, MeanSquaredError>;

/// The line predicts 0, and the targets are 1, 1 + 2/n, 1 + 4/n, ...
etude::TrainerOptions evaluation(std::int64_t examples = 10) {
  auto options = toy::options(toy::arguments(), 1, examples);
  options.args.per_device_eval_batch_size = 4;
  return options;
}
constexpr double mae = 1.9, mse = 3.94;  // Over 10 points: means of 1 + i/5 and its square, i = 0..9.

/// Records the metrics that a callback receives if it only reads them.
struct Reported {
  etude::Metrics evaluated = {}, logged = {};
  void on(const etude::Evaluate& e) { evaluated = e.metrics; }
  void on(const etude::Log& e) { logged = e.logs; }
};

TEST_CASE("each evaluation returns, raises and logs its metrics, under its prefix") {
  etude::Trainer<Errors, Reported> trainer(evaluation());
  for (int i = 0; i < 2; ++i) {
    const auto metrics = trainer.evaluate();
    for (const auto& where :
         {metrics, trainer.callback<Reported>().evaluated, trainer.callback<Reported>().logged}) {
      CHECK(where.at("eval_mae") == doctest::Approx(mae).epsilon(1e-6));
      CHECK(where.at("eval_mse") == doctest::Approx(mse).epsilon(1e-6));
      CHECK(where.contains("eval_loss"));
    }
  }
  CHECK(trainer.evaluate({.metric_key_prefix = "mine"}).contains("mine_mae"));
  CHECK(trainer.state().log_history.size() == 3);
}

TEST_CASE("each of several datasets has its own metrics") {
  auto options = evaluation();
  options.eval_dataset = {{"near", toy::dataset(1)}, {"far", toy::dataset(10)}};
  etude::Trainer<Errors> trainer(options);
  const auto metrics = trainer.evaluate();
  CHECK(metrics.at("eval_near_mae") == doctest::Approx(1));
  CHECK(metrics.at("eval_far_mae") == doctest::Approx(mae).epsilon(1e-6));
  CHECK_FALSE(metrics.contains("eval_mae"));
}

TEST_CASE("a prediction has metrics if there are labels") {
  etude::Trainer<Errors> trainer(evaluation());
  const auto [x, y] = toy::points(10);
  CHECK(trainer.predict({x, y}).metrics.at("test_mae") == doctest::Approx(mae).epsilon(1e-6));
  CHECK_FALSE(trainer.predict(x).metrics.contains("test_mae"));
}

TEST_CASE("the best model may be chosen by them, and training logs have none") {
  auto options = evaluation();
  options.args.eval_strategy = etude::IntervalStrategy::epoch;
  options.args.logging_strategy = etude::IntervalStrategy::steps;
  options.args.logging_steps = 1;
  options.args.metric_for_best_model = "mae";
  etude::Trainer<Errors> trainer(options);
  trainer.train();
  CHECK(trainer.state().best_metric.has_value());
  std::int64_t with = 0;
  for (const auto& line : trainer.state().log_history) {
    const bool evaluated = line.contains("eval_loss");
    CHECK(line.contains("eval_mae") == evaluated);
    with += evaluated;
  }
  CHECK(with == 1);
  CHECK(trainer.state().log_history.size() > 1);
}

TEST_CASE("an aborted evaluation leaves nothing for the next") {
  struct Breaks {
    void on(const etude::PredictionStepBegin&) {
      if (++seen == 2) throw std::runtime_error("broken");
    }
    int seen = 0;
  };
  etude::Trainer<Breaks, Errors> trainer(evaluation());
  CHECK_THROWS_WITH(trainer.evaluate(), "broken");
  CHECK(trainer.evaluate().at("eval_mae") == doctest::Approx(mae).epsilon(1e-6));
}

TEST_CASE("metrics with options are passed to its constructor, and work beside compute_metrics") {
  auto options = evaluation();
  options.compute_metrics = [](const etude::EvalPrediction&) { return etude::Metrics{{"seven", 7}}; };
  etude::Trainer trainer(options, etude::MetricCallback(R2Score({.name = "explained"})));
  const auto metrics = trainer.evaluate();
  CHECK(metrics.at("eval_explained") == doctest::Approx(1 - mse / (mse - mae * mae)).epsilon(1e-4));
  CHECK(metrics.at("eval_seven") == 7);
}

}  // namespace callbacks_metric_callback_test
