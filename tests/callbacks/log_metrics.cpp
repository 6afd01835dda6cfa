#include "etude/callbacks/log_metrics.hpp"

#include <doctest/doctest.h>

#include "common/printed.hpp"
#include "common/toy.hpp"
#include "etude/base/error.hpp"
#include "etude/callbacks/step_based_evaluation.hpp"

namespace callbacks_log_metrics_test {

/// Records the metrics that it logs.
struct Keeps : etude::LogMetricsBase<Keeps> {
  using LogMetricsBase::LogMetricsBase;

  void log_metrics(const etude::Context& e, const etude::Metrics& metrics) {
    std::string names;
    for (const auto& [name, value] : metrics)
      if (!name.ends_with("_runtime") && !name.ends_with("_per_second")) names += " " + name;
    logged.push_back(fmt::format("{}:{}", e.state.global_step, names));
    latest.update(metrics);
  }

  std::vector<std::string> logged = {};
  etude::Metrics latest = {};
};

etude::TrainerOptions options() {
  auto args = toy::arguments();
  args.num_train_epochs = 2;
  args.eval_strategy = etude::IntervalStrategy::epoch;
  auto result = toy::options(args, 2, 1);
  result.compute_metrics = [](const etude::EvalPrediction&) {
    return etude::Metrics{{"constrained_acc", .5}, {"acc", .25}};
  };
  return result;
}

using Lines = std::vector<std::string>;

TEST_CASE("training metrics are logged at the end of an epoch, others with their evaluation, each once") {
  // "constrained_acc" contains "train", but isn't a metric of training.
  etude::Trainer<Keeps> trainer(options());
  trainer.train();
  const std::string evaluated = " eval_loss eval_constrained_acc eval_acc eval_loss_epoch";
  CHECK(trainer.callback<Keeps>().logged ==
        Lines{"2: train_loss_epoch", "2:" + evaluated, "4: train_loss_epoch", "4:" + evaluated});
  CHECK(trainer.callback<Keeps>().latest.at("eval_acc") == .25);
  trainer.evaluate();
  CHECK(trainer.callback<Keeps>().logged.back() ==
        "4: eval_loss eval_constrained_acc eval_acc evaluation_loss");
}

TEST_CASE("an evaluation in the middle of an epoch doesn't log the last epoch's metrics again") {
  etude::Trainer<etude::StepBasedEvaluationCallback, Keeps> trainer(
      options(), etude::StepBasedEvaluationCallback{.eval_every_n_steps = 3});
  trainer.train();
  CHECK(trainer.callback<Keeps>().logged.at(2) ==
        "3: eval_loss eval_constrained_acc eval_acc intermediate_eval_loss");
}

TEST_CASE("with a history it logs metrics that others record there") {
  const auto history = std::make_shared<etude::InMemoryRunHistory>();
  struct Records {
    std::shared_ptr<etude::RunHistory> history;
    void on(const etude::EpochEnd& e) {
      history->update_metric("train_seen", static_cast<double>(e.state.global_step));
    }
  };
  history->update_metric("known_before", 1);
  etude::Trainer trainer(options(), etude::RunHistoryCallback(history, /*reset_on_train=*/false),
                         Records{history}, Keeps(history));
  trainer.train();
  CHECK(trainer.callback<Keeps>().logged.at(0) == "2: train_loss_epoch train_seen");
  CHECK_FALSE(trainer.callback<Keeps>().latest.contains("known_before"));
  CHECK(trainer.callback<Keeps>().latest.at("train_seen") == 4);
  CHECK(history->get_metric_values("train_loss_epoch").size() == 2);
  CHECK_THROWS_AS(Keeps(nullptr), etude::ArgumentError);
}

TEST_CASE("a second training that records as much as the first logs as much") {
  auto one_epoch = options();
  one_epoch.args.num_train_epochs = 1;
  etude::Trainer<Keeps> trainer(one_epoch);
  trainer.train();
  const auto once = trainer.callback<Keeps>().logged.size();
  CHECK(once == 2);
  trainer.train();
  CHECK(trainer.callback<Keeps>().logged.size() == 2 * once);
}

TEST_CASE("a second training logs its own metrics, and a resumed one nothing that was logged before") {
  const toy::Folder folder;
  auto resumable = options();
  resumable.args.output_dir = folder;
  resumable.args.save_strategy = etude::SaveStrategy::epoch;
  etude::Trainer<Keeps> first(resumable);
  first.train();
  const auto once = first.callback<Keeps>().logged;
  first.train();
  CHECK(first.callback<Keeps>().logged.size() == 2 * once.size());

  etude::Trainer<Keeps> rest(resumable);
  rest.train({.resume_from_checkpoint = folder / "checkpoint-2"});
  CHECK(rest.callback<Keeps>().logged == Lines{once[2], once[3]});
}

TEST_CASE("it prints one metric per line, like pytorch-accelerated") {
  const auto history = std::make_shared<etude::InMemoryRunHistory>();
  struct Records {
    std::shared_ptr<etude::RunHistory> history;
    void on(const etude::EpochEnd&) {
      history->update_metric("train_loss_epoch", .125);
      history->update_metric("train_accuracy", 1);
    }
    void on(const etude::Evaluate&) { history->update_metric("score", 2.5); }
  };
  auto one_epoch = options();
  one_epoch.args.num_train_epochs = 1;
  etude::Trainer trainer(one_epoch, etude::NoDefaultCallbacks{}, Records{history},
                         etude::LogMetricsCallback(history));
  CHECK(toy::printed([&] { trainer.train(); }) == "\ntrain_loss_epoch: 0.125\n\ntrain_accuracy: 1\n");
  CHECK(toy::printed([&] { trainer.evaluate(); }) == "\nscore: 2.5\n");
}

}  // namespace callbacks_log_metrics_test
