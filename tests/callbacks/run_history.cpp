#include "etude/callbacks/run_history.hpp"

#include <doctest/doctest.h>
#include <signal.h>

#include <map>
#include <random>

#include "common/full_run.hpp"
#include "common/toy.hpp"
#include "etude/base/error.hpp"
#include "etude/callbacks/step_based_evaluation.hpp"

namespace callbacks_run_history_test {

using Callback = etude::RunHistoryCallback;
using Values = std::vector<double>;

template <class Trainer>
etude::RunHistory& history_of(Trainer& trainer) {
  return trainer.template callback<Callback>().history();
}

/// The line stays 0. The points are at 0, .2, .4, .6 and .8, in batches of 2, 2 and 1, so the losses, the
/// squares of 2 x + 1, are 1, 1.96, 3.24, 4.84 and 6.76.
etude::TrainerOptions standing_still(std::int64_t accumulation) {
  auto args = toy::arguments();
  args.per_device_train_batch_size = 2;
  args.gradient_accumulation_steps = accumulation;
  args.learning_rate = 1e-30;
  args.num_train_epochs = 2;
  args.eval_strategy = etude::IntervalStrategy::epoch;
  return toy::options(args, 5, 1);
}

TEST_CASE("the loss of an epoch is the mean over its examples, whatever the accumulation") {
  for (const std::int64_t accumulation : {1, 2, 3, 7}) {
    CAPTURE(accumulation);
    etude::Trainer<Callback> trainer(standing_still(accumulation));
    trainer.train();
    const auto values = history_of(trainer).get_metric_values("train_loss_epoch");
    REQUIRE(values.size() == 2);
    for (const double value : values) CHECK(value == doctest::Approx(17.8 / 5).epsilon(1e-6));
  }
}

TEST_CASE("the loss of an epoch is right too if it counts the items of its accumulation group") {
  for (const std::int64_t accumulation : {1, 2, 3}) {
    CAPTURE(accumulation);
    auto options = standing_still(accumulation);
    options.loss = [](const torch::Tensor& output, const torch::Tensor& target, double num_items) {
      return (output - target).square().sum() / num_items;
    };
    etude::Trainer<Callback> trainer(options);
    trainer.train();
    CHECK(history_of(trainer).get_latest_metric("train_loss_epoch") ==
          doctest::Approx(17.8 / 5).epsilon(1e-6));
  }
}

TEST_CASE("an optimizer that evaluates the loss again and again counts each batch once") {
  auto options = standing_still(2);
  options.args.optim = etude::OptimizerNames::lbfgs;
  options.args.num_train_epochs = 1;
  struct Losses {
    double sum = 0;
    std::int64_t group = 0;
    std::vector<double> first = {};
    void on(const etude::StepBegin&) { first.clear(); }
    void on(const etude::ForwardBegin&) { ++group; }
    void on(const etude::BackwardEnd& e) {
      if (first.size() < static_cast<std::size_t>(group))
        first.push_back(e.loss.item<double>() * static_cast<double>(e.batch.size));
    }
    void on(const etude::StepEnd&) {
      for (const double loss : first) sum += loss * static_cast<double>(group);
      group = 0;
    }
  };
  etude::Trainer<Callback, Losses> trainer(options);
  trainer.train();
  CHECK(history_of(trainer).get_latest_metric("train_loss_epoch") ==
        doctest::Approx(trainer.callback<Losses>().sum / 5));
}

TEST_CASE("like in pytorch-accelerated, a training of two epochs records two values") {
  auto args = toy::arguments();
  args.eval_strategy = etude::IntervalStrategy::epoch;
  etude::Trainer<Callback> trainer(toy::options(args, 2, 1));
  trainer.train();
  const auto& history = history_of(trainer);
  CHECK(history.get_metric_values("train_loss_epoch").size() == 1);
  CHECK(history.get_metric_values("eval_loss_epoch").size() == 1);
  CHECK(history.current_epoch() == 2);
}

TEST_CASE("a run that is stopped in its first epoch keeps that as the current epoch") {
  struct Stops {
    void on(const etude::BackwardBegin& e) {
      if (e.state.global_step == 1) throw etude::StopTraining("enough");
    }
  };
  auto args = toy::arguments();
  args.num_train_epochs = 3;
  etude::Trainer<Callback, Stops> trainer(toy::options(args, 2));
  trainer.train();
  CHECK(history_of(trainer).current_epoch() == 1);
  CHECK(history_of(trainer).get_metric_values("train_loss_epoch").size() == 1);  // of its one step
}

TEST_CASE("every metric of an evaluation is recorded, and its loss by where it was computed") {
  auto args = toy::arguments();
  args.num_train_epochs = 2;
  args.eval_strategy = etude::IntervalStrategy::epoch;
  args.eval_on_start = true;
  auto options = toy::options(args, 3, 2);
  options.compute_metrics = [](const etude::EvalPrediction&) { return etude::Metrics{{"accuracy", .5}}; };
  struct Losses {
    Values all = {};
    void on(const etude::Evaluate& e) {
      if (e.metrics.contains("eval_loss")) all.push_back(e.metrics.at("eval_loss"));
    }
  };
  etude::Trainer<etude::StepBasedEvaluationCallback, Callback, Losses> trainer(
      options, etude::StepBasedEvaluationCallback{.eval_every_n_steps = 2});
  trainer.train();
  // Evaluations take place at the start, at step 2, after the first epoch, at steps 4 and 6, and after the
  // second.
  const auto& losses = trainer.callback<Losses>().all;
  REQUIRE(losses.size() == 6);
  const auto& history = history_of(trainer);
  CHECK(history.get_metric_values("eval_loss") == losses);
  CHECK(history.get_metric_values("eval_accuracy") == Values(6, .5));
  CHECK(history.get_metric_values("eval_runtime").size() == 6);
  CHECK_THROWS_AS(static_cast<void>(history.get_latest_metric("epoch")), etude::MetricError);
  CHECK(history.get_metric_values("eval_loss_epoch") == Values{losses[2], losses[5]});
  CHECK(history.get_metric_values("intermediate_eval_loss") == Values{losses[1], losses[3], losses[4]});

  const auto loss = trainer.evaluate().at("eval_loss");
  CHECK(history.get_metric_values("evaluation_loss") == Values{loss});
  CHECK(history.get_metric_values("train_loss_epoch").size() == 2);  // evaluate() doesn't clear the history
  trainer.evaluate({.metric_key_prefix = "final"});
  CHECK(history.get_metric_values("final_loss") == Values{loss});
  CHECK(history.get_metric_values("evaluation_loss").size() == 1);
}

TEST_CASE("metrics of several datasets contain their names") {
  auto options = standing_still(1);
  options.eval_dataset = {{"near", toy::dataset(1)}, {"far", toy::dataset(5)}};
  etude::Trainer<Callback> trainer(options);
  trainer.train();
  trainer.evaluate();
  const auto& history = history_of(trainer);
  CHECK(history.get_metric_values("eval_near_loss_epoch") == Values{1, 1});
  CHECK(history.get_latest_metric("eval_far_loss_epoch") == doctest::Approx(17.8 / 5));
  CHECK(history.get_metric_values("evaluation_near_loss") == Values{1});
  CHECK(history.get_metric_values("eval_far_loss").size() == 3);
}

TEST_CASE("a second training starts a new history, or continues it if configured") {
  for (const bool reset : {true, false}) {
    CAPTURE(reset);
    const auto history = std::make_shared<etude::InMemoryRunHistory>();
    etude::Trainer trainer(standing_still(1), Callback(history, reset));
    for (int i = 0; i < 2; ++i) CHECK(trainer.train().global_step == 6);
    CHECK(history->get_metric_values("train_loss_epoch").size() == (reset ? 2 : 4));
    CHECK(history->current_epoch() == (reset ? 3 : 5));
  }
}

TEST_CASE("a training that fails to resume leaves nothing for the next") {
  struct Fails {
    bool now = false;
    void on(const etude::TrainBegin&) {
      if (std::exchange(now, false)) throw std::runtime_error("not now");
    }
  };
  const toy::Folder folder;
  auto options = standing_still(1);
  toy::save_to(folder, options.args, 5);  // in the second epoch
  etude::Trainer<Callback>(options).train();
  options.args.save_strategy = etude::SaveStrategy::no;
  etude::Trainer<Fails, Callback> trainer(options, Fails{true});
  CHECK_THROWS_WITH(trainer.train({.resume_from_checkpoint = folder / "checkpoint-5"}), "not now");
  trainer.train();
  const auto values = history_of(trainer).get_metric_values("train_loss_epoch");
  REQUIRE(values.size() == 2);
  for (const double value : values) CHECK(value == doctest::Approx(17.8 / 5).epsilon(1e-6));
  CHECK(history_of(trainer).current_epoch() == 3);
}

TEST_CASE("an old checkpoint's state with a position in it is still read") {
  const auto history = std::make_shared<etude::InMemoryRunHistory>();
  const Callback callback(history);
  history->update_metric("eval_loss", .5);
  auto saved = callback.state();
  saved.erase("is_at_end");
  saved["place"] = {{"epochs_done", 1}, {"phase", "steps"}};
  Callback later;
  later.load_state(saved);
  CHECK(later.history().get_metric_values("eval_loss") == Values{.5});
}

TEST_CASE("two separate callbacks share nothing, and a null history is refused") {
  etude::Trainer<Callback> first(standing_still(1)), second(standing_still(1));
  first.train();
  CHECK(history_of(second).get_metric_names().empty());
  CHECK_THROWS_WITH_AS(Callback(nullptr), "RunHistoryCallback: history is a null pointer",
                       etude::ArgumentError);
}

// Sends SIGTERM at the n-th end of a micro-batch or a step.
struct Interrupter {
  std::string event = {};
  int n = 1;
  template <std::derived_from<etude::Context> Event>
  void on(const Event&) {
    if (etude::short_type_name<Event>() == event && --n == 0) ::raise(SIGTERM);
  }
};

struct Handler {
  void (*before)(int) = ::signal(SIGTERM, [](int) {});
  ~Handler() { ::signal(SIGTERM, before); }
};

std::string recorded(const etude::RunHistory& history) {
  auto text = fmt::format("epoch {}\n", history.current_epoch());
  for (const auto& name : history.get_metric_names())
    if (!toy::is_timing(name))
      text += fmt::format("{} {}\n", name, fmt::join(history.get_metric_values(name), " "));
  return text;
}

TEST_CASE("after a restart, in the middle of an accumulation too, the history is the same to the bit") {
  const Handler handler;
  const auto run = [](const std::string& folder, Interrupter interrupter) {
    std::mt19937 engine;
    auto options = toy::full_options(folder, engine);
    options.args.eval_strategy = etude::IntervalStrategy::epoch;
    etude::Trainer trainer(options, etude::StepBasedEvaluationCallback{.eval_every_n_steps = 4}, Callback(),
                           interrupter);
    try {
      trainer.train({.resume_from_checkpoint = etude::if_any});
    } catch (const etude::Interrupted&) {
      return std::string("interrupted");
    }
    return recorded(history_of(trainer));
  };
  const toy::Folder whole;
  const auto expected = run(whole, {});
  CHECK(expected.find("train_loss_epoch") != std::string::npos);
  CHECK(expected.find("intermediate_eval_loss") != std::string::npos);
  CHECK(expected.find("eval_loss_epoch") != std::string::npos);
  CHECK(expected.starts_with("epoch 3\n"));
  // A step raises SubstepEnd 3 times, the last step of an epoch 2 times.
  for (const auto& at : std::vector<std::pair<std::string, int>>{{"SubstepEnd", 1},
                                                                 {"SubstepEnd", 8},
                                                                 {"SubstepEnd", 17},
                                                                 {"SubstepEnd", 19},
                                                                 {"StepEnd", 5},
                                                                 {"StepEnd", 6},
                                                                 {"EpochEnd", 1},
                                                                 {"PredictionStep", 1},
                                                                 {"Evaluate", 2},
                                                                 {"TrainingRunEpochEnd", 1},
                                                                 {"EpochBegin", 2}}) {
    CAPTURE(at.first);
    CAPTURE(at.second);
    const toy::Folder folder;
    REQUIRE(run(folder, {at.first, at.second}) == "interrupted");
    CHECK(run(folder, {}) == expected);
  }
}

TEST_CASE("from a checkpoint of any step the history is the same too") {
  std::mt19937 engine;
  const toy::Folder folder;
  const auto run = [&](const etude::TrainOptions& how, bool saves) {
    auto options = toy::full_options(folder, engine);
    if (!saves) options.args.save_strategy = etude::SaveStrategy::no;
    etude::Trainer<Callback> trainer(options);
    trainer.train(how);
    return recorded(history_of(trainer));
  };
  const auto expected = run({}, true);
  for (int step = 1; step <= 12; ++step)
    CHECK(run({.resume_from_checkpoint = folder / fmt::format("checkpoint-{}", step)}, false) == expected);
}

}  // namespace callbacks_run_history_test
