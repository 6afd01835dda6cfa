#include "etude/callbacks/early_stopping.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <limits>

#include "common/fault_of.hpp"
#include "common/logged.hpp"
#include "common/printed.hpp"
#include "common/scored.hpp"
#include "common/toy.hpp"
#include "etude/base/error.hpp"
#include "etude/callbacks/limit_eval_steps.hpp"
#include "etude/callbacks/model_ema.hpp"
#include "etude/callbacks/step_based_evaluation.hpp"
#include "etude/reflect/json.hpp"

namespace callbacks_early_stopping_test {

struct Run {
  std::size_t evaluations;
  std::int64_t counter;
  std::optional<double> best;
  std::optional<double> last_improvement;
  std::string reason;
};

/// Trains with a metric that takes these values, one per epoch.
Run run(const std::vector<double>& values, bool greater_is_better, etude::EarlyStoppingCallback callback) {
  auto options = toy::scored(values);
  options.args.metric_for_best_model = "score";
  options.args.greater_is_better = greater_is_better;
  etude::Trainer<etude::EarlyStoppingCallback> trainer(options, callback);
  const auto output = trainer.train();
  const auto& after = trainer.callback<etude::EarlyStoppingCallback>();
  const auto evaluations = toy::logged(trainer.state(), "eval_score").size();
  return {evaluations, after.state.early_stopping_patience_counter, trainer.state().best_metric,
          after.state.last_improvement, output.stop_reason};
}

// The expected numbers follow from the rule of Hugging Face's callback.

TEST_CASE("patience counts evaluations without improvement") {
  const auto result = run({.5, .6, .6, .59, .7}, true, {.early_stopping_patience = 2});
  CHECK(result.evaluations == 4);
  CHECK(result.counter == 2);
  CHECK(result.best == .6);
  CHECK(result.reason == "eval_score has not improved in 2 evaluations");
}

TEST_CASE("improvements below the threshold don't count, though they move the best") {
  const auto result =
      run({1.0, .97, .94, .91}, false, {.early_stopping_patience = 2, .early_stopping_threshold = .05});
  CHECK(result.evaluations == 3);
  CHECK(result.best == .94);
}

TEST_CASE("with a cumulative threshold, small improvements add up until they count") {
  const etude::EarlyStoppingCallback cumulative{
      .early_stopping_patience = 2,
      .early_stopping_threshold = .05,
      .early_stopping_threshold_kind = etude::EarlyStoppingThreshold::cumulative};
  // .97 is within .05 of 1; .94 isn't, so it counts; .91 and .9 are within .05 of .94.
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

TEST_CASE("with a cumulative threshold it equals pytorch-accelerated's callback, except for NaN") {
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
  // If NaN comes first, pytorch-accelerated's callback never finds a better value, and stops after 3.
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

TEST_CASE("an improvement of exactly the threshold doesn't count, and a worse value doesn't move the best") {
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

TEST_CASE("an improvement restarts the count") {
  const auto result = run({1, 1.1, .9, 1, .8}, false, {.early_stopping_patience = 2});
  CHECK(result.evaluations == 5);
  CHECK(result.reason.empty());
  CHECK(result.counter == 0);
}

TEST_CASE("NaN is never an improvement or the best") {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  const auto result = run({nan, 1, nan, nan, .5}, false, {.early_stopping_patience = 2});
  CHECK(result.evaluations == 4);
  CHECK(result.best == 1);
}

TEST_CASE("a second training restarts the count") {
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
  CHECK(trainer.train().global_step == 2);  // it would be 1 if the first training's two evaluations counted
  CHECK(trainer.callback<etude::EarlyStoppingCallback>().state.early_stopping_patience_counter == 2);
}

TEST_CASE("a run that is resumed after its stop stops again before its first step") {
  const toy::Folder folder;
  auto args = toy::arguments();
  args.output_dir = folder;
  args.num_train_epochs = 4;
  args.eval_strategy = etude::IntervalStrategy::epoch;
  args.save_strategy = etude::SaveStrategy::epoch;
  args.learning_rate = 1e-12;  // The loss stays the same: one best value, then no improvement.
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
  CHECK(resume(3).global_step == 4);  // With more patience, it continues.
  args.log_level = etude::LogLevel::warning;
  const auto said_with = [&](std::int64_t patience) {
    return toy::printed([&] { resume(patience); }, STDERR_FILENO);
  };
  CHECK(said_with(2).find(
            "nothing is left to train: eval_loss had not improved in 2 evaluations at step 3, which "
            "is resumed; to continue, raise early_stopping_patience (2); to start from scratch, give another "
            "output_dir\n") != std::string::npos);
  CHECK(said_with(3).find("nothing is left") == std::string::npos);
}

TEST_CASE("a run that stopped within an epoch and is started again raises and writes nothing twice") {
  struct Counts {
    int stops = 0, epochs = 0, steps = 0, saves = 0;
    void on(const etude::Stop&) { ++stops; }
    void on(const etude::EpochBegin&) { ++epochs; }
    void on(const etude::StepEnd&) { ++steps; }
    void on(const etude::Save&) { ++saves; }
  };
  const toy::Folder folder;
  auto args = toy::arguments();
  toy::save_to(folder, args, 2);
  args.max_steps = 6;
  args.eval_strategy = etude::IntervalStrategy::steps;
  args.eval_steps = 1;
  args.learning_rate = 1e-12;  // The loss stays the same: one best value, then no improvement.
  const auto run = [&](std::int64_t patience) {
    etude::Trainer<etude::EarlyStoppingCallback, Counts> trainer(
        toy::options(args, 10), etude::EarlyStoppingCallback{.early_stopping_patience = patience});
    const auto output = trainer.train({.resume_from_checkpoint = etude::if_any});
    CHECK(output.stop_reason == (patience < 5 ? "eval_loss has not improved in 2 evaluations" : ""));
    return trainer.callback<Counts>();
  };
  const auto first = run(2);
  CHECK(first.stops == 1);
  CHECK(first.epochs == 1);
  CHECK(first.steps == 3);
  CHECK(first.saves == 2);
  const auto written = std::filesystem::last_write_time(folder / "checkpoint-3");
  const auto again = run(2);
  CHECK(again.stops == 0);
  CHECK(again.epochs == 0);
  CHECK(again.steps == 0);
  CHECK(std::filesystem::last_write_time(folder / "checkpoint-3") == written);
  const auto patient = run(6);  // continues from its position
  CHECK(patient.stops == 0);
  CHECK(patient.epochs == 1);
  CHECK(patient.steps == 3);
}

TEST_CASE("its whole state is in its members, and round-trips through JSON") {
  etude::EarlyStoppingCallback callback{
      .early_stopping_patience = 4,
      .early_stopping_threshold = .5,
      .early_stopping_threshold_kind = etude::EarlyStoppingThreshold::cumulative};
  CHECK(
      etude::to_json_value(callback).dump() ==
      R"({"early_stopping_patience":4,"early_stopping_threshold":0.5,)"
      R"("early_stopping_threshold_kind":"cumulative","watch_metric":"","greater_is_better":null,"count_intermediate":true})");
  callback.state = {.early_stopping_patience_counter = 3,
                    .last_improvement = .1,
                    .best = .1,
                    .watched = {.found = true, .others = "eval_loss"}};
  const auto json = etude::to_json_value(callback.state);
  CHECK(json.dump() == R"({"early_stopping_patience_counter":3,"last_improvement":0.1,"best":0.1,)"
                       R"("watched":{"found":true,"others":"eval_loss"}})");
  CHECK(etude::to_json_value(etude::from_json_value<etude::EarlyStoppingCallback::State>(json)) == json);
}

TEST_CASE("a metric that no evaluation has is an error, not a stop that never happens") {
  auto args = toy::arguments();
  args.num_train_epochs = 3;
  args.eval_strategy = etude::IntervalStrategy::epoch;
  auto options = toy::options(args, 1);
  options.eval_dataset = {{"near", toy::dataset(1)}, {"far", toy::dataset(2)}};
  for (const double epochs : {3, 1}) {  // Also at the end, where no step comes after the evaluation.
    options.args.num_train_epochs = epochs;
    etude::Trainer<etude::EarlyStoppingCallback> trainer(options);
    CHECK_THROWS_WITH_AS(trainer.train(),
                         doctest::Contains("metric_for_best_model is 'eval_loss', and no evaluation has it: "
                                           "must be one of eval_"),
                         etude::MetricError);
    CHECK(trainer.state().global_step == 1);
    etude::Trainer<etude::EarlyStoppingCallback> own(options,
                                                     etude::EarlyStoppingCallback{.watch_metric = "f1"});
    CHECK_THROWS_WITH_AS(own.train(), doctest::Contains("watch_metric is 'f1', and no evaluation"),
                         etude::MetricError);
  }
  options.args.metric_for_best_model = "far_loss";
  etude::Trainer<etude::EarlyStoppingCallback> watching(options);
  watching.train();
}

/// Evaluates when a step is done, as StepBasedEvaluationCallback does.
struct EachStep {
  void on(const etude::StepEnd& e) { e.control.should_evaluate = true; }
};

TEST_CASE("it watches any metric, in its own direction, independent of the best model's metric") {
  using Watching = etude::Trainer<etude::EarlyStoppingCallback>;
  struct Row {
    std::string watched;
    std::optional<bool> greater;
    std::optional<std::string> best;
    std::optional<bool> best_greater;
    std::int64_t steps;
  };
  // One metric grows, one falls, and the loss is constant: one best value, then two without improvement.
  const std::vector<Row> rows{
      {"", {}, {}, {}, 3},
      {"eval_up", {}, {}, {}, 6},
      {"eval_down", {}, {}, {}, 3},
      {"eval_down", false, {}, {}, 6},
      {"eval_down", {}, "down", false, 6},
      {"eval_up", false, "up", true, 3},
      {"eval_down_loss", {}, "up", {}, 6},
      {"eval_loss", {}, "up", {}, 3},
  };
  for (const auto& row : rows)
    for (const auto kind :
         {etude::EarlyStoppingThreshold::each_evaluation, etude::EarlyStoppingThreshold::cumulative}) {
      CAPTURE(row.watched);
      CAPTURE(row.steps);
      auto args = toy::arguments();
      args.num_train_epochs = 6;
      args.learning_rate = 1e-12;
      args.eval_strategy = etude::IntervalStrategy::epoch;
      args.metric_for_best_model = row.best;
      args.greater_is_better = row.best_greater;
      auto options = toy::options(args, 1);
      options.compute_metrics = [n = 0.](const etude::EvalPrediction&) mutable {
        ++n;
        return etude::Metrics{{"up", n}, {"down", -n}, {"down_loss", -n}};
      };
      Watching trainer(options, etude::EarlyStoppingCallback{.early_stopping_patience = 2,
                                                             .early_stopping_threshold_kind = kind,
                                                             .watch_metric = row.watched,
                                                             .greater_is_better = row.greater});
      const auto output = trainer.train();
      CHECK(output.global_step == row.steps);
      if (row.steps == 3)
        CHECK(output.stop_reason == fmt::format("{} has not improved in 2 evaluations",
                                                row.watched.empty() ? "eval_loss" : row.watched));
    }
}

TEST_CASE("improvements of a custom metric within the threshold move the best, but don't count") {
  const auto options = toy::scored({1.0, .97, .94, .91});
  const auto callback = [](etude::EarlyStoppingThreshold kind) {
    return etude::EarlyStoppingCallback{.early_stopping_patience = 2,
                                        .early_stopping_threshold = .05,
                                        .early_stopping_threshold_kind = kind,
                                        .watch_metric = "eval_score",
                                        .greater_is_better = false};
  };
  using enum etude::EarlyStoppingThreshold;
  CHECK(
      etude::Trainer<etude::EarlyStoppingCallback>(options, callback(each_evaluation)).train().global_step ==
      3);
  CHECK(etude::Trainer<etude::EarlyStoppingCallback>(options, callback(cumulative)).train().global_step == 4);
}

TEST_CASE("it watches the metrics of an average of the weights") {
  auto args = toy::arguments();
  args.num_train_epochs = 4;
  args.learning_rate = 1e-12;
  args.eval_strategy = etude::IntervalStrategy::epoch;
  etude::Trainer<etude::EarlyStoppingCallback, etude::ModelEmaCallback> trainer(
      toy::options(args, 1), etude::EarlyStoppingCallback{.watch_metric = "ema_model_eval_loss"},
      etude::ModelEmaCallback{});
  const auto output = trainer.train();
  CHECK(output.global_step == 2);
  CHECK(output.stop_reason == "ema_model_eval_loss has not improved in 1 evaluations");
}

TEST_CASE("evaluations that other callbacks request count, and a training without any is reported") {
  auto args = toy::arguments();
  args.learning_rate = 1e-12;
  args.log_level = etude::LogLevel::warning;
  REQUIRE(args.eval_strategy == etude::IntervalStrategy::no);
  const std::string warning = "EarlyStoppingCallback had nothing to watch: no evaluation counts";
  const auto reported = [&](auto& trainer, std::int64_t steps) {
    return toy::printed([&] { CHECK(trainer.train().global_step == steps); }, STDERR_FILENO);
  };
  etude::Trainer<etude::EarlyStoppingCallback, EachStep> trainer(toy::options(args, 5));
  CHECK(reported(trainer, 2).find(warning) == std::string::npos);
  etude::Trainer<etude::EarlyStoppingCallback> blind(toy::options(args, 5));
  CHECK(reported(blind, 5).find(warning) != std::string::npos);
}

TEST_CASE("short evaluations within an epoch count or don't, and then don't move the best either") {
  struct Row {
    bool count_intermediate;
    std::vector<double> values;
    std::int64_t steps;
  };
  // Evaluations take place at step 2, at the end of the first epoch of three steps, at steps 4 and 6, and at
  // the end of the second.
  for (const auto& row : std::vector<Row>{{true, {.9, .5, .9, .9, .4}, 4},
                                          {false, {.9, .5, .9, .9, .4}, 6},
                                          {true, {.1, .5, .1, .1, .4}, 3},
                                          {false, {.1, .5, .1, .1, .4}, 6}}) {
    CAPTURE(row.values);
    CAPTURE(row.count_intermediate);
    auto args = toy::arguments();
    args.num_train_epochs = 2;
    args.eval_strategy = etude::IntervalStrategy::epoch;
    args.metric_for_best_model = "score";
    args.greater_is_better = false;
    auto options = toy::options(args, 3, 5);
    options.compute_metrics = [values = row.values, i = 0u](const etude::EvalPrediction& p) mutable {
      return etude::Metrics{{"score", values.at(i++)},
                            {"size", static_cast<double>(p.predictions.single().size(0))}};
    };
    etude::Trainer<etude::LimitEvalStepsCallback, etude::StepBasedEvaluationCallback,
                   etude::EarlyStoppingCallback>
        trainer(options, etude::LimitEvalStepsCallback{.num_eval_steps = 2},
                etude::StepBasedEvaluationCallback{.eval_every_n_steps = 2},
                etude::EarlyStoppingCallback{.count_intermediate = row.count_intermediate});
    CHECK(trainer.train().global_step == row.steps);
    if (row.steps < 6) continue;
    CHECK(trainer.callback<etude::EarlyStoppingCallback>().state.early_stopping_patience_counter == 0);
    CHECK((toy::logged(trainer.state(), "eval_size") == std::vector<double>{2, 5, 2, 2, 5}));
  }
}

TEST_CASE("evaluations outside of a training don't count") {
  auto args = toy::arguments();
  args.num_train_epochs = 2;
  args.eval_strategy = etude::IntervalStrategy::epoch;
  etude::Trainer<etude::EarlyStoppingCallback> trainer(
      toy::options(args, 1), etude::EarlyStoppingCallback{.early_stopping_patience = 3});
  trainer.train();
  for (int i = 0; i < 4; ++i) trainer.evaluate();
  CHECK(trainer.callback<etude::EarlyStoppingCallback>().state.early_stopping_patience_counter == 0);
  CHECK_FALSE(trainer.context().control.should_training_stop);
}

TEST_CASE("without a custom metric the loss decides") {
  auto args = toy::arguments();
  args.num_train_epochs = 6;
  args.learning_rate = 1e-12;
  args.eval_strategy = etude::IntervalStrategy::epoch;
  etude::Trainer<etude::EarlyStoppingCallback> trainer(
      toy::options(args, 1), etude::EarlyStoppingCallback{.early_stopping_patience = 3});
  CHECK(trainer.train().global_step ==
        4);  // The loss stays the same: one best value, then three without improvement.
}

TEST_CASE("unsupported options and inputs are refused by name") {
  auto args = toy::arguments();
  const auto refusal = [&](etude::EarlyStoppingCallback callback, bool has_data = true) -> std::string {
    auto options = toy::options(args);
    if (!has_data) options.eval_dataset = {};
    etude::Trainer<etude::EarlyStoppingCallback> trainer(options, callback);
    return toy::fault_of<etude::ArgumentError>([&] { trainer.train(); });
  };
  CHECK(refusal({.early_stopping_patience = 0}) == "early_stopping_patience is 0: must be at least 1");
  CHECK(refusal({.early_stopping_threshold = -1}) ==
        "early_stopping_threshold is -1: must be at least 0 and finite, or inf");
  CHECK(refusal({}, false) == "eval_dataset is not set: EarlyStoppingCallback needs evaluations");
}

TEST_CASE("eval_strategy no gives a warning before the first step") {
  struct Mark {
    void on(const etude::StepBegin& e) {
      if (e.state.global_step == 0) std::fputs("the first step\n", stderr);
    }
  };
  auto args = toy::arguments();
  args.log_level = etude::LogLevel::warning;
  const auto said = [&](auto... callbacks) {
    etude::Trainer<Mark, decltype(callbacks)...> trainer(toy::options(args, 1), callbacks...);
    const auto text = toy::printed([&] { trainer.train(); }, STDERR_FILENO);
    return text.substr(0, text.find("the first step"));
  };
  CHECK(said(etude::EarlyStoppingCallback{}) ==
        "etude: warning: EarlyStoppingCallback watches evaluations, and eval_strategy is no: set it to epoch "
        "or "
        "steps, unless one of your callbacks requests evaluations\n");
  CHECK(said(etude::StepBasedEvaluationCallback{.eval_every_n_steps = 1}, etude::EarlyStoppingCallback{}) ==
        "");
  args.eval_strategy = etude::IntervalStrategy::epoch;
  CHECK(said(etude::EarlyStoppingCallback{}) == "");
}

}  // namespace callbacks_early_stopping_test
