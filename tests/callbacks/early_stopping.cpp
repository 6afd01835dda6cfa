#include "etude/callbacks/early_stopping.hpp"

#include <doctest/doctest.h>

#include <limits>

#include "common/toy.hpp"
#include "etude/reflect/json.hpp"

namespace {

struct Run {
  std::size_t evaluations;
  std::int64_t counter;
  std::optional<double> best;
  std::optional<double> last_improvement;
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
  const auto& after = trainer.callback<etude::EarlyStoppingCallback>();
  return {evaluations, after.early_stopping_patience_counter, trainer.state().best_metric,
          after.last_improvement, output.stop_reason};
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

TEST_CASE("with a cumulative threshold, small gains add up until they count") {
  const etude::EarlyStoppingCallback cumulative{
      .early_stopping_patience = 2,
      .early_stopping_threshold = .05,
      .early_stopping_threshold_kind = etude::EarlyStoppingThreshold::cumulative};
  // .97 is within .05 of 1; .94 isn't and counts; .91 and .9 are within .05 of .94.
  auto result = run({1.0, .97, .94, .91, .9, .5}, false, cumulative);
  CHECK(result.evaluations == 5);
  CHECK(result.last_improvement == .94);
  CHECK(result.best == .9);
  CHECK(result.reason == "eval_score has not improved in 2 evaluations");
  // Slow but steady: never two in a row without an improvement that counts.
  result = run({1.0, .97, .94, .91, .88, .85, .82}, false, cumulative);
  CHECK(result.evaluations == 7);
  CHECK(result.last_improvement == .82);
}

TEST_CASE("with a cumulative threshold it is pytorch-accelerated's callback, but for NaN") {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  struct Row {
    std::vector<double> values;
    std::int64_t patience;
    double threshold;
    bool greater_is_better;
    std::size_t evaluations;
    double last_improvement;
    std::int64_t counter;
  };
  // Where NaN comes first, pytorch-accelerated's never finds anything better, and stops after 3.
  const std::vector<Row> rows{{{1, .995, .98, .97}, 2, .01, false, 4, .97, 0},
                              {{1, .99, .5}, 1, .01, false, 3, .5, 0},
                              {{1, 1.1, 1.2, 1.3, 1.4}, 3, .01, false, 4, 1, 3},
                              {{1, 1, 1}, 2, 0, false, 3, 1, 2},
                              {{nan, 1, .5, .4}, 2, .01, false, 4, .4, 0},
                              {{1, nan, .5, .4}, 2, .01, false, 4, .4, 0},
                              {{.1, .2, .205, .21, .215, .3}, 2, .01, true, 4, .2, 2},
                              {{1, .992, .984, .976, .968, .96}, 2, .01, false, 6, .968, 1}};
  for (const auto& row : rows) {
    CAPTURE(row.values);
    const auto result = run(row.values, row.greater_is_better,
                            {.early_stopping_patience = row.patience,
                             .early_stopping_threshold = row.threshold,
                             .early_stopping_threshold_kind = etude::EarlyStoppingThreshold::cumulative});
    CHECK(result.evaluations == row.evaluations);
    CHECK(result.last_improvement == row.last_improvement);
    CHECK(result.counter == row.counter);
  }
}

TEST_CASE("a gain of exactly the threshold is none, and a loss moves no bar, of either kind") {
  using enum etude::EarlyStoppingThreshold;
  for (const auto kind : {each_evaluation, cumulative}) {
    const etude::EarlyStoppingCallback callback{
        .early_stopping_patience = 2, .early_stopping_threshold = .25, .early_stopping_threshold_kind = kind};
    CHECK(run({.5, .75, .25, 2}, true, callback).evaluations == 3);
    const auto result = run({.5, .25, 1, 1, 1.25, 2}, true, callback);
    CHECK(result.evaluations == 5);
    CHECK(result.last_improvement == 1);
  }
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

TEST_CASE("a run that is resumed after it was to stop stops again before its first step") {
  const toy::Folder folder;
  auto args = toy::arguments();
  args.output_dir = folder;
  args.num_train_epochs = 4;
  args.eval_strategy = etude::IntervalStrategy::epoch;
  args.save_strategy = etude::SaveStrategy::epoch;
  args.learning_rate = 1e-12;  // The loss stays: one best, then none.
  etude::Trainer<etude::EarlyStoppingCallback> first(
      toy::options(args, 1), etude::EarlyStoppingCallback{.early_stopping_patience = 2});
  const auto stopped = first.train();
  CHECK(stopped.global_step == 3);
  CHECK(stopped.stop_reason == "eval_loss has not improved in 2 evaluations");

  const auto resume = [&](std::int64_t patience) {
    auto callback = first.callback<etude::EarlyStoppingCallback>();
    callback.early_stopping_patience = patience;
    etude::Trainer<etude::EarlyStoppingCallback> trainer(toy::options(args, 1), callback);
    return trainer.train({.resume_from_checkpoint = folder / "checkpoint-3"});
  };
  CHECK(resume(2).global_step == 3);
  CHECK(resume(2).stop_reason == stopped.stop_reason);
  CHECK(resume(3).global_step == 4);  // More patience is given: it goes on.
}

TEST_CASE("its whole state is in its fields, and goes through JSON") {
  const etude::EarlyStoppingCallback callback{
      .early_stopping_patience = 4,
      .early_stopping_threshold = .5,
      .early_stopping_threshold_kind = etude::EarlyStoppingThreshold::cumulative,
      .early_stopping_patience_counter = 3,
      .last_improvement = .1,
      .found_metric = true,
      .missing_metric = true};
  const auto json = etude::to_json_value(callback);
  CHECK(json.dump() == R"({"early_stopping_patience":4,"early_stopping_threshold":0.5,)"
                       R"("early_stopping_threshold_kind":"cumulative","early_stopping_patience_counter":3,)"
                       R"("last_improvement":0.1,"found_metric":true,"missing_metric":true})");
  CHECK(etude::to_json_value(etude::from_json_value<etude::EarlyStoppingCallback>(json)) == json);
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
