#include <doctest/doctest.h>

#include <random>
#include <string>

#include "common/fault_of.hpp"
#include "common/full_run.hpp"
#include "common/toy.hpp"
#include "etude/base/error.hpp"
#include "etude/callbacks/early_stopping.hpp"
#include "etude/callbacks/save_best_model.hpp"
#include "etude/callbacks/top_k_checkpoints.hpp"
#include "etude/metrics/accuracy.hpp"

namespace loop_metric_check_test {

using toy::contains;

etude::TrainerOptions wanting(std::string metric) {
  auto args = toy::arguments();
  args.eval_strategy = etude::IntervalStrategy::epoch;
  args.metric_for_best_model = std::move(metric);
  auto options = toy::options(args, 4, 3);
  options.compute_metrics = [](const etude::EvalPrediction&) { return etude::Metrics{{"score", 1}}; };
  return options;
}

struct Begun {
  bool any = false;
  void on(const etude::TrainBegin&) { any = true; }
  void on(const etude::Log&) { any = true; }
  void on(const etude::Evaluate&) { any = true; }
};

TEST_CASE("a mistyped metric_for_best_model throws before the first step and names the existing metrics") {
  etude::Trainer<Begun> trainer(wanting("scor"));
  const auto fault = toy::fault_of<etude::MetricError>([&] { trainer.train(); });
  CHECK(contains(
      fault,
      "metric_for_best_model is 'scor', and the evaluation has no 'eval_scor': must be one of eval_loss, "
      "eval_score; did you mean 'eval_score'?"));
  CHECK_FALSE(trainer.callback<Begun>().any);
}

TEST_CASE("a mistyped metric throws with Etude's own metrics, batch_eval_metrics and several datasets too") {
  auto options = wanting("acuracy");
  options.compute_metrics = etude::metrics::accuracy;
  options.model = torch::nn::Linear(1, 2);
  options.loss = torch::nn::CrossEntropyLoss();
  options.train_dataset = {torch::zeros({4, 1}), torch::zeros({4}, torch::kLong)};
  options.eval_dataset = {torch::zeros({4, 1}), torch::zeros({4}, torch::kLong)};
  CHECK(contains(toy::fault_of<etude::MetricError>([&] { etude::Trainer<>(options).train(); }),
                 "did you mean 'eval_accuracy'?"));
  options = wanting("scor");
  options.args.batch_eval_metrics = true;
  options.compute_metrics = [](const etude::EvalPrediction&, bool) { return etude::Metrics{{"score", 1}}; };
  CHECK_THROWS_AS(etude::Trainer<>(options).train(), etude::MetricError);
  options = wanting("loss");
  options.eval_dataset = {{"near", toy::dataset(1)}, {"far", toy::dataset(2)}};
  etude::Trainer<> trainer(options);
  CHECK(contains(toy::fault_of<etude::MetricError>([&] { trainer.train(); }), "eval_near_loss"));
  CHECK(trainer.state().global_step == 0);
}

template <class Watching>
std::string fault_of_watching(const std::string& metric) {
  Watching callback;
  callback.watch_metric = metric;
  etude::Trainer<Watching> trainer(wanting("score"), callback);
  const auto fault = toy::fault_of<etude::MetricError>([&] { trainer.train(); });
  CHECK(trainer.state().global_step == 0);
  return fault;
}

TEST_CASE("a mistyped metric of a callback throws too, with or without eval_") {
  for (const std::string wrong : {"eval_scor", "score"}) {
    CHECK(contains(fault_of_watching<etude::EarlyStoppingCallback>(wrong),
                   "watch_metric of EarlyStoppingCallback is '" + wrong +
                       "', and no evaluation has it: must be one of eval_loss, eval_score; did you mean "));
    CHECK(contains(fault_of_watching<etude::SaveBestModelCallback>(wrong),
                   "watch_metric of SaveBestModelCallback is '" + wrong + "'"));
    CHECK(fault_of_watching<etude::TopKCheckpointsCallback>(wrong).ends_with("did you mean 'eval_score'?"));
  }
}

TEST_CASE("a callback's metric that exists, or that only another kind of evaluation has, doesn't throw") {
  struct Tests {
    void on(const etude::EpochBegin& e) { e.trainer.evaluate({.metric_key_prefix = "test"}); }
  };
  auto options = wanting("loss");
  options.args.num_train_epochs = 2;
  etude::Trainer<Tests, etude::EarlyStoppingCallback> trainer(
      options, Tests(),
      etude::EarlyStoppingCallback{.early_stopping_patience = 9, .watch_metric = "test_score"});
  trainer.train();
  CHECK(trainer.state().global_step == 8);
}

/// A model that counts its evaluations in a buffer, and draws random numbers.
struct CountingImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) {
    if (!is_training()) {
      count += 1;
      torch::rand({3});
    }
    return torch::dropout(line(x), 0.5, is_training());
  }
  torch::Tensor count = register_buffer("count", torch::zeros({}));
  toy::Line line{register_module("line", toy::Line())};
};
TORCH_MODULE(Counting);

/// The weights and everything else that a training makes visible.
template <class Trainer>
std::string seen(Trainer& trainer) {
  auto text = toy::tensors(trainer);
  for (const auto& line : trainer.state().log_history)
    for (const auto& [name, value] : line)
      if (!toy::is_timing(name)) text += name + "=" + value.dump() + " ";
  return text + (trainer.template callback<Begun>().any ? "begun" : "");
}

TEST_CASE("the dry run for an existing metric leaves no trace") {
  std::string outcomes[2];
  for (const bool dry_run : {false, true}) {
    auto options = wanting("score");
    if (!dry_run) options.args.metric_for_best_model.reset();
    options.args.logging_strategy = etude::IntervalStrategy::steps;
    options.args.logging_steps = 1;
    options.model = Counting();
    std::mt19937 engine(3);
    options.generators = {{"mine", &engine}};
    options.compute_metrics = [calls = 0., &engine](const etude::EvalPrediction&) mutable {
      return etude::Metrics{{"score", ++calls}, {"drawn", static_cast<double>(engine() % 1000)}};
    };
    etude::Trainer<Begun> trainer(options);
    trainer.train();
    outcomes[dry_run] = seen(trainer);
  }
  CHECK(outcomes[0] == outcomes[1]);
}

/// A model whose buffer becomes as large as the batches that it evaluates.
struct GrowingImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) {
    if (!is_training()) scratch.set_data(torch::ones({x.size(0)}));
    sizes.push_back(scratch.size(0));
    return line(x);
  }
  std::vector<std::int64_t> sizes;
  torch::Tensor scratch = register_buffer("scratch", torch::zeros({7}));
  toy::Line line{register_module("line", toy::Line())};
};
TORCH_MODULE(Growing);

TEST_CASE("a buffer that changes its shape in the dry run is restored") {
  auto options = wanting("score");
  Growing model;
  options.model = model;
  etude::Trainer<>(options).train();
  CHECK((model->sizes == std::vector<std::int64_t>{1, 7, 7, 7, 7, 1, 1, 1}));
}

/// Adds another metric.
struct Adds {
  void on(etude::Evaluate& e) { e.metrics["eval_mine"] = 1; }
};

struct Logs {
  void on(const etude::PredictionStep& e) { e.log("eval_mine", 2); }
};

struct AddsInLog : etude::TrainerBase<AddsInLog> {
  using TrainerBase::TrainerBase;
  void log(etude::Metrics& logs) {
    logs["eval_mine"] = 3;
    TrainerBase::log(logs);
  }
};

TEST_CASE("a metric that a callback or a custom trainer adds isn't missing") {
  etude::Trainer<Adds> adds(wanting("mine"));
  adds.train();
  CHECK(adds.state().best_metric == 1);
  etude::Trainer<Logs> logs(wanting("mine"));
  logs.train();
  CHECK(logs.state().best_metric == 2);
  AddsInLog own(wanting("mine"));
  own.train();
  CHECK(own.state().best_metric == 3);
  etude::Trainer<etude::RuntimeCallbacks> runtime(wanting("mine"));
  const auto handle = runtime.add_callback(Adds());
  runtime.train();
  CHECK(runtime.state().best_metric == 1);
  etude::Trainer<etude::RuntimeCallbacks> none(wanting("mine"));
  CHECK_THROWS_AS(none.train(), etude::MetricError);
  CHECK(none.state().global_step == 0);
}

struct Clears {
  void on(etude::Evaluate& e) { e.metrics.clear(); }
};

TEST_CASE("an evaluation that a callback leaves without metrics is an error that says so") {
  etude::Trainer<Clears> trainer(wanting("score"));
  CHECK(toy::fault_of<etude::MetricError>([&] { trainer.train(); }) ==
        "metric_for_best_model is 'score', and the evaluation has no 'eval_score': it has no metrics at all: "
        "a callback must have removed them");
}

TEST_CASE("nothing is evaluated if no evaluation is planned") {
  auto options = wanting("scor");
  options.args.eval_strategy = etude::IntervalStrategy::no;
  int calls = 0;
  options.compute_metrics = [&](const etude::EvalPrediction&) { return ++calls, etude::Metrics{}; };
  etude::Trainer<>(options).train();
  CHECK(calls == 0);
}

TEST_CASE("a metric that needs more than one batch isn't refused") {
  auto options = wanting("score");
  options.compute_metrics = [](const etude::EvalPrediction& p) {
    if (p.predictions.single().size(0) < 3) throw std::runtime_error("too few");
    return etude::Metrics{{"score", 1}};
  };
  etude::Trainer<> trainer(options);
  trainer.train();
  CHECK(trainer.state().best_metric == 1);
}

}  // namespace loop_metric_check_test
