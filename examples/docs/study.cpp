/// The parts that docs/studies.md shows besides those of examples/search.cpp.

#include <etude/study/importance.hpp>
#include <etude/study/report.hpp>
#include <etude/study/study.hpp>

#include "common.hpp"

void ask_and_tell() {
  const auto train_set = points(400), eval_set = points(200);
  std::filesystem::remove("study.log");
  // [ask_and_tell]
  etude::Study study(
      {.directions = {etude::StudyDirection::maximize},
       .journal = "study.log",
       .pruner = std::make_shared<etude::MedianPruner>(),
       .seed = 1});
  for (int i = 0; i < 5; ++i) {
    auto trial = study.ask();
    auto args = small_arguments();
    args.learning_rate = trial.suggest_float(
        "learning_rate", {.low = 1e-5, .high = 1e-1, .log = true});
    args.per_device_train_batch_size = trial.suggest_int(
        "per_device_train_batch_size", {.low = 8, .high = 64, .step = 8});
    etude::Trainer<> trainer(
        {.model = Net(),
         .args = args,
         .loss = torch::nn::CrossEntropyLoss(),
         .train_dataset = train_set,
         .eval_dataset = eval_set,
         .compute_metrics = etude::metrics::accuracy});
    trainer.train();
    study.tell(trial, trainer.evaluate().at("eval_accuracy"));
  }
  fmt::print("{}\n", study.best_trial()->param("learning_rate").dump());
  // [/ask_and_tell]
  // [report]
  const auto trials = study.trials();
  fmt::print(
      "{}", etude::format_trials(trials, {etude::StudyDirection::maximize}));
  etude::write_report(
      "study.html", "points", trials, {etude::StudyDirection::maximize});
  const auto importances =
      etude::param_importances(trials, etude::StudyDirection::maximize);
  // [/report]
  check(trials.size() == 5, "a study keeps its trials");
  check(std::filesystem::exists("study.html"), "a study has a page");
  check(
      importances.size() <= 2, "importances are those of the hyperparameters");
}

int main() { return run(ask_and_tell); }
