#include "etude/events.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "common/scored.hpp"
#include "common/stream.hpp"
#include "common/toy.hpp"
#include "etude/callbacks/early_stopping.hpp"

namespace events_test {

// Sequences worked out from Hugging Face's Trainer (v5).

using etude::IntervalStrategy;
using etude::SaveStrategy;
using toy::a_step;
using toy::a_step_of_two;
using toy::an_evaluation;
using toy::Recorder;
using toy::run;

template <class... Others>
std::string events_of(etude::TrainerOptions options, Others... others) {
  etude::Trainer<Recorder, Others...> trainer(std::move(options), Recorder{}, std::move(others)...);
  trainer.train();
  return trainer.template callback<Recorder>().events();
}

/// Arguments for groups of two batches, a log after each step, and output in a folder.
etude::TrainingArguments logged_pairs(const std::string& folder) {
  auto args = toy::arguments();
  args.output_dir = folder;
  args.gradient_accumulation_steps = 2;
  args.logging_strategy = IntervalStrategy::steps;
  args.logging_steps = 1;
  return args;
}

/// Options for one step in each of several epochs, after which `score` has these values; the greatest is the
/// best.
etude::TrainerOptions scored(etude::TrainingArguments args, const std::vector<double>& scores) {
  args.eval_strategy = IntervalStrategy::epoch;
  args.metric_for_best_model = "score";
  args.greater_is_better = true;
  auto options = toy::options(args, 1);
  options.compute_metrics = toy::scores(scores);
  return options;
}

/// Where the events that were heard first differ from the expected ones; empty if they don't.
std::string difference(const std::vector<std::string>& heard, const std::string& names) {
  std::istringstream words(names);
  const std::vector<std::string> expected{std::istream_iterator<std::string>(words), {}};
  const auto [found, wanted] = std::ranges::mismatch(heard, expected);
  if (found == heard.end() && wanted == expected.end()) return "";
  return fmt::format("{} comes after {}, where {} is expected: add it to tests/events.cpp if it is new",
                     found == heard.end() ? "nothing" : *found,
                     found == heard.begin() ? "nothing" : *std::prev(found),
                     wanted == expected.end() ? "nothing" : *wanted);
}

TEST_CASE("three batches in groups of two, with logs, evaluations and checkpoints") {
  const toy::Folder folder;
  auto args = logged_pairs(folder);
  args.eval_strategy = IntervalStrategy::steps;
  args.eval_steps = 2;
  args.save_strategy = SaveStrategy::steps;
  args.save_steps = 2;
  CHECK(events_of(toy::options(args, 3, 2)) ==
        run("InitEnd TrainBegin EpochBegin", a_step_of_two, "Log", a_step,
            "Log PredictionStep PredictionStep Evaluate Log Save EpochEnd Log TrainEnd"));
}

TEST_CASE("the default strategies save at the end and log the summary") {
  const toy::Folder folder;
  auto args = toy::arguments();
  args.output_dir = folder;
  args.logging_strategy = IntervalStrategy::steps;
  args.save_strategy = SaveStrategy::steps;
  CHECK(events_of(toy::options(args, 2)) ==
        run("InitEnd TrainBegin EpochBegin", a_step, a_step, "Save EpochEnd Log TrainEnd"));
}

TEST_CASE("logging_first_step logs the first step") {
  auto args = toy::arguments();
  args.logging_strategy = IntervalStrategy::steps;
  args.logging_first_step = true;
  CHECK(events_of(toy::options(args, 3)) ==
        run("InitEnd TrainBegin EpochBegin", a_step, "Log", a_step, a_step, "EpochEnd Log TrainEnd"));
}

TEST_CASE("logs and evaluations of every epoch come after its end, the log first") {
  auto args = toy::arguments();
  args.num_train_epochs = 2;
  args.logging_strategy = IntervalStrategy::epoch;
  args.eval_strategy = IntervalStrategy::epoch;
  CHECK(events_of(toy::options(args, 1)) == run("InitEnd TrainBegin EpochBegin", a_step, "EpochEnd Log",
                                                an_evaluation, "EpochBegin", a_step, "EpochEnd Log",
                                                an_evaluation, "Log TrainEnd"));
}

TEST_CASE("checkpoints of every epoch are not written twice at the end") {
  const toy::Folder folder;
  auto args = toy::arguments();
  args.output_dir = folder;
  args.num_train_epochs = 2;
  args.save_strategy = SaveStrategy::epoch;
  CHECK(events_of(toy::options(args, 1)) == run("InitEnd TrainBegin EpochBegin", a_step,
                                                "EpochEnd Save EpochBegin", a_step,
                                                "EpochEnd Save Log TrainEnd"));
}

TEST_CASE("an epoch that was logged at its last step is not logged again") {
  auto args = toy::arguments();
  args.logging_strategy = IntervalStrategy::steps;
  args.logging_steps = 2;
  args.num_train_epochs = 2;
  CHECK(events_of(toy::options(args, 2)) == run("InitEnd TrainBegin EpochBegin", a_step, a_step,
                                                "Log EpochEnd EpochBegin", a_step, a_step,
                                                "Log EpochEnd Log TrainEnd"));
}

TEST_CASE("evaluation by steps also comes at the end") {
  auto args = toy::arguments();
  args.eval_strategy = IntervalStrategy::steps;
  args.eval_steps = 2;
  CHECK(events_of(toy::options(args, 5)) == run("InitEnd TrainBegin EpochBegin", a_step, a_step,
                                                an_evaluation, a_step, a_step, an_evaluation, a_step,
                                                an_evaluation, "EpochEnd Log TrainEnd"));
}

TEST_CASE("eval_delay delays the first evaluations") {
  auto args = toy::arguments();
  args.eval_strategy = IntervalStrategy::steps;
  args.eval_steps = 2;
  args.eval_delay = 3;
  CHECK(events_of(toy::options(args, 5)) == run("InitEnd TrainBegin EpochBegin", a_step, a_step, a_step,
                                                a_step, an_evaluation, a_step, an_evaluation,
                                                "EpochEnd Log TrainEnd"));
  args = toy::arguments();
  args.num_train_epochs = 2;
  args.eval_strategy = IntervalStrategy::epoch;
  args.eval_delay = 2;
  CHECK(events_of(toy::options(args, 1)) == run("InitEnd TrainBegin EpochBegin", a_step,
                                                "EpochEnd EpochBegin", a_step, "EpochEnd", an_evaluation,
                                                "Log TrainEnd"));
}

TEST_CASE("max_steps ends within an epoch") {
  auto args = toy::arguments();
  args.max_steps = 3;
  CHECK(events_of(toy::options(args, 2)) == run("InitEnd TrainBegin EpochBegin", a_step, a_step,
                                                "EpochEnd EpochBegin", a_step, "EpochEnd Log TrainEnd"));
}

TEST_CASE("a fraction of an epoch is a fraction of its steps") {
  auto args = toy::arguments();
  args.num_train_epochs = 1.5;
  CHECK(events_of(toy::options(args, 2)) == run("InitEnd TrainBegin EpochBegin", a_step, a_step,
                                                "EpochEnd EpochBegin", a_step, "EpochEnd Log TrainEnd"));
}

TEST_CASE("steps below one are a share of all steps") {
  const toy::Folder folder;
  auto args = toy::arguments();
  args.output_dir = folder;
  args.save_strategy = SaveStrategy::steps;
  args.save_steps = 0.5;
  args.logging_strategy = IntervalStrategy::steps;
  args.logging_steps = 0.25;
  CHECK(events_of(toy::options(args, 4)) == run("InitEnd TrainBegin EpochBegin", a_step, "Log", a_step,
                                                "Log Save", a_step, "Log", a_step,
                                                "Log Save EpochEnd Log TrainEnd"));
}

TEST_CASE("eval_on_start evaluates between the beginnings of training and of its first epoch") {
  auto args = toy::arguments();
  args.eval_strategy = IntervalStrategy::epoch;
  args.eval_on_start = true;
  CHECK(events_of(toy::options(args, 1)) == run("InitEnd TrainBegin", an_evaluation, "EpochBegin", a_step,
                                                "EpochEnd", an_evaluation, "Log TrainEnd"));
}

TEST_CASE("save_strategy best saves after an evaluation with a new best") {
  const toy::Folder folder;
  auto args = toy::arguments();
  args.output_dir = folder;
  args.num_train_epochs = 4;
  args.save_strategy = SaveStrategy::best;
  CHECK(events_of(scored(args, {0.5, 0.4, 0.5, 0.6})) ==
        run("InitEnd TrainBegin EpochBegin", a_step, "EpochEnd", an_evaluation, "Save EpochBegin", a_step,
            "EpochEnd", an_evaluation, "EpochBegin", a_step, "EpochEnd", an_evaluation, "EpochBegin", a_step,
            "EpochEnd", an_evaluation, "Save Log TrainEnd"));
}

TEST_CASE("each of several evaluation sets has its log and its event") {
  auto args = toy::arguments();
  args.eval_strategy = IntervalStrategy::epoch;
  auto options = toy::options(args, 1);
  options.eval_dataset = {{"near", toy::dataset(1)}, {"far", toy::dataset(2)}};
  CHECK(events_of(options) == run("InitEnd TrainBegin EpochBegin", a_step, "EpochEnd", an_evaluation,
                                  "PredictionStep PredictionStep Evaluate Log Log TrainEnd"));
}

TEST_CASE("early stopping by epochs ends after the evaluation") {
  auto args = toy::arguments();
  args.num_train_epochs = 5;
  CHECK(events_of(scored(args, {0.5, 0.4, 0.9}), etude::EarlyStoppingCallback{}) ==
        run("InitEnd TrainBegin EpochBegin", a_step, "EpochEnd", an_evaluation, "EpochBegin", a_step,
            "EpochEnd", an_evaluation, "Log TrainEnd"));
}

TEST_CASE("a checkpoint that is pushed raises PushBegin") {
  const toy::Folder folder;
  auto args = toy::arguments();
  args.output_dir = folder;
  args.save_strategy = SaveStrategy::epoch;
  auto options = toy::options(args, 1);
  std::vector<std::filesystem::path> pushed;
  options.push = [&](const std::filesystem::path& checkpoint) { pushed.push_back(checkpoint); };
  CHECK(events_of(options) ==
        run("InitEnd TrainBegin EpochBegin", a_step, "EpochEnd Save PushBegin Log TrainEnd"));
  CHECK(pushed == std::vector<std::filesystem::path>{folder / "checkpoint-1"});
}

TEST_CASE("evaluate and predict outside of training") {
  auto options = toy::options(toy::arguments(), 1, 2);
  etude::Trainer trainer(options, Recorder{});
  trainer.evaluate();
  trainer.predict(toy::dataset(3));
  CHECK(trainer.callback<Recorder>().events() ==
        "InitEnd PredictionStep PredictionStep Evaluate Log PredictionStep PredictionStep PredictionStep "
        "Predict");
  CHECK(difference(trainer.callback<Recorder>().heard,
                   "InitEnd EvaluationRunBegin DataLoaderCreated EvaluateBegin PredictionStepBegin "
                   "PredictionStep PredictionStepBegin PredictionStep Evaluate Log EvaluateEnd EvaluateAll "
                   "EvaluationRunEnd DataLoaderCreated PredictBegin PredictionStepBegin PredictionStep "
                   "PredictionStepBegin PredictionStep PredictionStepBegin PredictionStep Predict "
                   "PredictEnd") == "");
}

TEST_CASE("every event of a training, Etude's beside Hugging Face's") {
  const toy::Folder folder;
  auto args = logged_pairs(folder);
  args.eval_strategy = IntervalStrategy::epoch;
  args.save_strategy = SaveStrategy::epoch;
  args.load_best_model_at_end = true;
  etude::Trainer trainer(toy::options(args), Recorder{});
  trainer.train();
  CHECK(difference(trainer.callback<Recorder>().heard,
                   "InitEnd DataLoaderCreated AccumulationPlanned AccumulationPlanned TrainBegin EpochBegin "
                   "AccumulationPlanned BatchFetchBegin BatchFetched BatchFetched StepBegin ForwardBegin "
                   "BackwardBegin BackwardEnd SubstepEnd ForwardBegin BackwardBegin BackwardEnd "
                   "GradientsComplete GradientsClipped PreOptimizerStep OptimizerStep SchedulerStep StepEnd "
                   "Log EpochEnd DataLoaderCreated EvaluateBegin PredictionStepBegin PredictionStep Evaluate "
                   "Log EvaluateEnd EvaluateAll SaveBegin Save TrainingRunEpochEnd Log CheckpointLoaded "
                   "TrainEnd") == "");
}

TEST_CASE("the trace of pytorch-accelerated: two training batches, one evaluation batch") {
  // In pytorch-accelerated: on_training_run_start, on_train_epoch_start, 2 x (on_train_step_start,
  // on_train_step_end), on_train_epoch_end, the same for the evaluation, on_training_run_epoch_end,
  // on_training_run_end.
  auto args = toy::arguments();
  args.eval_strategy = IntervalStrategy::epoch;
  etude::Trainer trainer(toy::options(args), Recorder{});
  trainer.train();
  std::string trace;
  for (const auto& name : trainer.callback<Recorder>().heard)
    for (const auto* known :
         {"InitEnd", "TrainBegin", "EpochBegin", "ForwardBegin", "BackwardBegin", "EpochEnd", "EvaluateBegin",
          "PredictionStepBegin", "PredictionStep", "Evaluate", "TrainingRunEpochEnd", "TrainEnd",
          "EvaluationRunBegin", "EvaluationRunEnd", "Stop"})
      if (name == known) trace += name + " ";
  CHECK(trace ==
        "InitEnd TrainBegin EpochBegin ForwardBegin BackwardBegin ForwardBegin BackwardBegin EpochEnd "
        "EvaluateBegin "
        "PredictionStepBegin PredictionStep Evaluate TrainingRunEpochEnd TrainEnd ");
}

TEST_CASE("a dataset without a length begins an epoch whenever it restarts, until max_steps") {
  auto args = toy::arguments();
  args.max_steps = 5;
  args.gradient_accumulation_steps = 2;
  auto options = toy::options(args);
  options.train_dataset = toy::Stream{3};
  CHECK(events_of(options) == run("InitEnd TrainBegin EpochBegin", a_step_of_two, a_step,
                                  "EpochEnd EpochBegin", a_step_of_two, a_step, "EpochEnd EpochBegin",
                                  a_step_of_two, "EpochEnd Log TrainEnd"));
}

TEST_CASE("an empty stream ends the training, with a message") {
  auto args = toy::arguments();
  args.max_steps = 5;
  auto options = toy::options(args);
  options.train_dataset = toy::Stream{0};
  etude::Trainer trainer(options, Recorder{});
  const auto output = trainer.train();
  CHECK(output.global_step == 0);
  CHECK(output.stop_reason == "train_dataset gave no batches");
  CHECK(trainer.callback<Recorder>().events() == "InitEnd TrainBegin EpochBegin EpochEnd Log TrainEnd");
}

TEST_CASE("a callback and the trainer log samples of every kind at once") {
  struct Kinds {
    std::vector<std::size_t> heard = {};
    void on(const etude::LogSamples& e) {
      for (const auto& sample : e.samples) heard.push_back(sample.content.index());
    }
  };
  struct Logs {
    void on(const etude::StepEnd& e) const {
      e.log_text("t", "x");
      e.log_image("i", torch::zeros({2, 2}), "black");
      e.log_audio("a", torch::zeros({4}), 8000, "silence");
    }
  };
  etude::Trainer<Logs, Kinds> trainer(toy::options(toy::arguments(), 1));
  trainer.train();
  CHECK(trainer.callback<Kinds>().heard == std::vector<std::size_t>{0, 1, 2});
  trainer.log_audio("a", torch::zeros({4}), 8000);
  trainer.log_image("i", torch::zeros({2, 2}));
  trainer.log_text("t", "x");
  CHECK(trainer.callback<Kinds>().heard == std::vector<std::size_t>{0, 1, 2, 2, 1, 0});
}

}  // namespace events_test
