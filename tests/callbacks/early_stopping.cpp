#include "etude/callbacks/early_stopping.hpp"

#include <doctest/doctest.h>

#include <limits>

#include "common/toy.hpp"

namespace {

struct Run {
  std::size_t evaluations;
  std::int64_t counter;
  std::optional<double> best;
  std::string reason;
};

/// Trains with a metric that takes these values, one an epoch.
Run run(const std::vector<double>& values, bool greater_is_better, etude::EarlyStoppingCallback callback) {
  auto args = toy::arguments();
  args.num_train_epochs = static_cast<double>(values.size());
  args.eval_strategy = etude::IntervalStrategy::epoch;
  args.metric_for_best_model = "score";
  args.greater_is_better = greater_is_better;
  auto options = toy::options(args, 1);
  std::size_t evaluations = 0;
  options.compute_metrics = [&](const etude::EvalPrediction&) {
    return etude::Metrics{{"score", values[evaluations++]}};
  };
  etude::Trainer<etude::EarlyStoppingCallback> trainer(options, callback);
  const auto output = trainer.train();
  return {evaluations, trainer.callback<etude::EarlyStoppingCallback>().early_stopping_patience_counter,
          trainer.state().best_metric, output.stop_reason};
}

// The expected numbers are those of Hugging Face's callback, worked out from its rule.

TEST_CASE("patience counts evaluations without a gain") {
  const auto result = run({.5, .6, .6, .59, .7}, true, {.early_stopping_patience = 2});
  CHECK(result.evaluations == 4);
  CHECK(result.counter == 2);
  CHECK(result.best == .6);
  CHECK(result.reason == "eval_score has not improved in 2 evaluations");
}

TEST_CASE("gains below the threshold don't count, though the best moves with them") {
  const auto result =
      run({1.0, .97, .94, .91}, false, {.early_stopping_patience = 2, .early_stopping_threshold = .05});
  CHECK(result.evaluations == 3);
  CHECK(result.best == .94);
}

TEST_CASE("a gain begins the count anew") {
  const auto result = run({1, 1.1, .9, 1, .8}, false, {.early_stopping_patience = 2});
  CHECK(result.evaluations == 5);
  CHECK(result.reason.empty());
  CHECK(result.counter == 0);
}

TEST_CASE("NaN is no gain and never the best") {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  const auto result = run({nan, 1, nan, nan, .5}, false, {.early_stopping_patience = 2});
  CHECK(result.evaluations == 4);
  CHECK(result.best == 1);
}

TEST_CASE("a second training counts anew") {
  auto args = toy::arguments();
  args.num_train_epochs = 2;
  args.eval_strategy = etude::IntervalStrategy::epoch;
  args.metric_for_best_model = "score";
  auto options = toy::options(args, 1);
  options.compute_metrics = [](const etude::EvalPrediction&) {
    return etude::Metrics{{"score", std::numeric_limits<double>::quiet_NaN()}};
  };
  etude::Trainer<etude::EarlyStoppingCallback> trainer(
      options, etude::EarlyStoppingCallback{.early_stopping_patience = 3});
  CHECK(trainer.train().global_step == 2);
  CHECK(trainer.train().global_step == 2);  // With the two of before it would have stopped after one.
  CHECK(trainer.callback<etude::EarlyStoppingCallback>().early_stopping_patience_counter == 2);
}

TEST_CASE("a metric that no evaluation has is an error, not a stopping that never comes") {
  auto args = toy::arguments();
  args.num_train_epochs = 3;
  args.eval_strategy = etude::IntervalStrategy::epoch;
  auto options = toy::options(args, 1);
  options.eval_dataset = {{"near", toy::dataset(1)}, {"far", toy::dataset(2)}};
  etude::Trainer<etude::EarlyStoppingCallback> trainer(options);
  CHECK_THROWS_AS(trainer.train(), etude::MetricError);
  options.args.metric_for_best_model = "far_loss";
  etude::Trainer<etude::EarlyStoppingCallback> watching(options);
  watching.train();
}

TEST_CASE("without a metric of one's own the loss decides") {
  auto args = toy::arguments();
  args.num_train_epochs = 6;
  args.learning_rate = 1e-12;
  args.eval_strategy = etude::IntervalStrategy::epoch;
  etude::Trainer<etude::EarlyStoppingCallback> trainer(
      toy::options(args, 1), etude::EarlyStoppingCallback{.early_stopping_patience = 3});
  CHECK(trainer.train().global_step == 4);  // The loss stays: one best, three without a gain.
}

TEST_CASE("what it can't work with is refused by name") {
  auto args = toy::arguments();
  const auto refusal = [&](etude::EarlyStoppingCallback callback) -> std::string {
    etude::Trainer<etude::EarlyStoppingCallback> trainer(toy::options(args), callback);
    try {
      trainer.train();
    } catch (const etude::ArgumentError& error) {
      return error.what();
    }
    return "";
  };
  CHECK(refusal({}) == "eval_strategy is no: EarlyStoppingCallback needs evaluations, by steps or epoch");
  args.eval_strategy = etude::IntervalStrategy::epoch;
  CHECK(refusal({.early_stopping_patience = 0}) == "early_stopping_patience is 0: must be at least 1");
  CHECK(refusal({.early_stopping_threshold = -1}) == "early_stopping_threshold is -1: must be at least 0");
}

}  // namespace
