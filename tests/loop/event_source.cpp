#include "etude/loop/event_source.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>
#include <stdexcept>
#include <string>
#include <string_view>

#include "common/toy.hpp"

namespace loop_event_source_test {

// However a training ends, each open scope gets its end event, every callback gets the error, and the
// exception propagates unchanged.

struct Boom : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Throws once in each event named.
struct ThrowsIn {
  std::set<std::string_view> names;
  template <class Event>
  void on(const Event&) {
    if (names.erase(etude::short_type_name<Event>()) > 0) throw Boom("boom");
  }
};

/// Comes after the callback that throws, and records the events that follow.
struct Witness {
  std::vector<std::string> heard = {};
  std::string callback = {}, event = {}, what = {};
  bool error_before_ends = true;

  void on(const etude::TrainBegin&) { heard.emplace_back("TrainBegin"); }
  void on(const etude::EpochBegin&) { heard.emplace_back("EpochBegin"); }
  void on(const etude::EpochEnd&) { heard.emplace_back("EpochEnd"); }
  void on(const etude::TrainingRunEpochEnd&) { heard.emplace_back("TrainingRunEpochEnd"); }
  void on(const etude::EvaluateBegin&) { heard.emplace_back("EvaluateBegin"); }
  void on(const etude::EvaluateEnd&) { heard.emplace_back("EvaluateEnd"); }
  void on(const etude::EvaluationRunEnd&) { heard.emplace_back("EvaluationRunEnd"); }
  void on(const etude::PredictEnd&) { heard.emplace_back("PredictEnd"); }
  void on(const etude::Log& e) {
    if (e.logs.contains("train_runtime")) heard.emplace_back("Log");
  }
  void on(const etude::TrainEnd&) { heard.emplace_back("TrainEnd"); }
  void on(const etude::TrainError& e) {
    heard.emplace_back("TrainError");
    callback = e.callback;
    event = e.event;
    what = e.what;
  }
  auto count(const std::string& name) const { return std::count(heard.begin(), heard.end(), name); }
  std::string from_error() const {
    const auto at = std::find(heard.begin(), heard.end(), "TrainError");
    return fmt::format("{}", fmt::join(at, heard.end(), " "));
  }
};

Witness thrown_in(const std::string& name) {
  const toy::Folder folder;
  auto args = toy::arguments();
  args.output_dir = folder;
  args.gradient_accumulation_steps = 2;
  args.num_train_epochs = 2;
  args.eval_strategy = etude::IntervalStrategy::epoch;
  args.save_strategy = etude::SaveStrategy::epoch;
  args.load_best_model_at_end = true;
  args.logging_strategy = etude::IntervalStrategy::steps;
  args.logging_steps = 1;
  auto options = toy::options(args);
  options.push = [](const std::filesystem::path&) {};
  etude::Trainer<ThrowsIn, Witness, toy::Recorder> trainer(options, ThrowsIn{{name}});
  CHECK_THROWS_WITH_AS(trainer.train(), "boom", Boom);
  const auto witness = trainer.callback<Witness>();
  CAPTURE(name);
  CHECK(witness.count("TrainError") == 1);
  CHECK(witness.event == name);
  CHECK(witness.callback == "ThrowsIn");
  CHECK(witness.what == "boom");
  CHECK(witness.count("EpochBegin") <= witness.count("EpochEnd"));
  CHECK(witness.count("EpochEnd") == witness.count("TrainingRunEpochEnd"));
  CHECK(witness.count("EvaluateBegin") <= witness.count("EvaluateEnd"));
  CHECK(witness.count("TrainEnd") == 1);
  CHECK(witness.heard.back() == (name == "TrainEnd" ? "TrainError" : "TrainEnd"));
  CHECK(trainer.model().is_training());
  // The trainer can train again, and has forgotten earlier requests.
  auto& recorder = trainer.callback<toy::Recorder>();
  recorder.heard.clear();
  CHECK(trainer.train().global_step == 2);
  CHECK(recorder.events() == toy::run("TrainBegin EpochBegin", toy::a_step_of_two, "Log EpochEnd",
                                      toy::an_evaluation, "Save PushBegin EpochBegin", toy::a_step_of_two,
                                      "Log EpochEnd", toy::an_evaluation, "Save PushBegin Log TrainEnd"));
  return witness;
}

TEST_CASE("a callback that throws, in each event of a training") {
  CHECK(thrown_in("TrainBegin").from_error() == "TrainError Log TrainEnd");
  const std::string in_epoch = "TrainError EpochEnd TrainingRunEpochEnd Log TrainEnd";
  CHECK(thrown_in("EpochBegin").from_error() == in_epoch);
  CHECK(thrown_in("BatchFetched").from_error() == in_epoch);
  CHECK(thrown_in("StepBegin").from_error() == in_epoch);
  CHECK(thrown_in("ForwardBegin").from_error() == in_epoch);
  CHECK(thrown_in("BackwardBegin").from_error() == in_epoch);
  CHECK(thrown_in("BackwardEnd").from_error() == in_epoch);
  CHECK(thrown_in("SubstepEnd").from_error() == in_epoch);
  CHECK(thrown_in("GradientsClipped").from_error() == in_epoch);
  CHECK(thrown_in("PreOptimizerStep").from_error() == in_epoch);
  CHECK(thrown_in("OptimizerStep").from_error() == in_epoch);
  CHECK(thrown_in("SchedulerStep").from_error() == in_epoch);
  CHECK(thrown_in("StepEnd").from_error() == in_epoch);
  CHECK(thrown_in("Log").from_error() == in_epoch);
  const std::string behind_epoch_end = "TrainError TrainingRunEpochEnd Log TrainEnd";
  CHECK(thrown_in("EpochEnd").from_error() == behind_epoch_end);
  const std::string in_evaluation = "TrainError EvaluateEnd TrainingRunEpochEnd Log TrainEnd";
  CHECK(thrown_in("EvaluateBegin").from_error() == in_evaluation);
  CHECK(thrown_in("PredictionStepBegin").from_error() == in_evaluation);
  CHECK(thrown_in("PredictionStep").from_error() == in_evaluation);
  CHECK(thrown_in("Evaluate").from_error() == in_evaluation);
  CHECK(thrown_in("EvaluateEnd").from_error() == behind_epoch_end);
  CHECK(thrown_in("Save").from_error() == behind_epoch_end);
  CHECK(thrown_in("PushBegin").from_error() == behind_epoch_end);
  CHECK(thrown_in("TrainingRunEpochEnd").from_error() == "TrainError Log TrainEnd");
  CHECK(thrown_in("CheckpointLoaded").from_error() ==
        "TrainError TrainEnd");  // the summary has already been logged
  CHECK(thrown_in("TrainEnd").from_error() == "TrainError");
}

TEST_CASE("a callback that throws in Stop") {
  etude::Trainer<ThrowsIn, Witness> trainer(toy::options(toy::arguments()), ThrowsIn{{"Stop"}});
  trainer.control().should_epoch_stop = true;
  CHECK_THROWS_AS(trainer.train(), Boom);
  CHECK(trainer.callback<Witness>().from_error() == "TrainError Log TrainEnd");
}

TEST_CASE("a callback that throws while the trainer is built, or outside of training") {
  CHECK_THROWS_AS((etude::Trainer<ThrowsIn>(toy::options(toy::arguments()), ThrowsIn{{"InitEnd"}})), Boom);

  etude::Trainer<ThrowsIn, Witness> trainer(
      toy::options(toy::arguments()),
      ThrowsIn{{"EvaluationRunBegin", "EvaluateBegin", "PredictBegin", "Predict"}});
  const auto& heard = trainer.callback<Witness>().heard;
  CHECK_THROWS_AS(trainer.evaluate(), Boom);  // EvaluationRunBegin
  CHECK(heard == std::vector<std::string>{"TrainError", "EvaluationRunEnd"});
  CHECK_THROWS_AS(trainer.evaluate(), Boom);  // EvaluateBegin
  CHECK(trainer.callback<Witness>().event == "EvaluateBegin");
  CHECK(fmt::format("{}", fmt::join(heard.end() - 3, heard.end(), " ")) ==
        "TrainError EvaluateEnd EvaluationRunEnd");
  CHECK_THROWS_AS(trainer.predict(toy::dataset(1)), Boom);  // PredictBegin
  CHECK(heard.back() == "PredictEnd");
  CHECK_THROWS_AS(trainer.predict(toy::dataset(1)), Boom);  // Predict
  CHECK(heard.back() == "PredictEnd");
  trainer.evaluate();
  trainer.predict(toy::dataset(1));

  etude::Trainer<ThrowsIn, Witness> ending(toy::options(toy::arguments()),
                                           ThrowsIn{{"EvaluationRunEnd", "PredictEnd"}});
  CHECK_THROWS_AS(ending.evaluate(), Boom);
  CHECK(ending.callback<Witness>().event == "EvaluationRunEnd");
  CHECK_THROWS_AS(ending.predict(toy::dataset(1)), Boom);
  CHECK(ending.callback<Witness>().event == "PredictEnd");
  CHECK(ending.callback<Witness>().callback == "ThrowsIn");
}

TEST_CASE("an exception of the model, the loss or the data names no callback") {
  for (const auto what : {"loss", "data", "metrics"}) {
    auto args = toy::arguments();
    args.eval_strategy = etude::IntervalStrategy::epoch;
    auto options = toy::options(args);
    if (what == std::string("loss"))
      options.loss = [](torch::Tensor, torch::Tensor) -> torch::Tensor { throw Boom("boom"); };
    if (what == std::string("data"))
      options.data_collator = [](std::vector<etude::Example>) -> etude::Batch { throw Boom("boom"); };
    if (what == std::string("data"))
      options.train_dataset =
          std::vector<std::pair<torch::Tensor, torch::Tensor>>{{torch::ones({1}), torch::ones({1})}};
    if (what == std::string("metrics"))
      options.compute_metrics = [](const etude::EvalPrediction&) -> etude::Metrics { throw Boom("boom"); };
    etude::Trainer<Witness> trainer(options);
    CAPTURE(what);
    CHECK_THROWS_AS(trainer.train(), Boom);
    CHECK(trainer.callback<Witness>().count("TrainError") == 1);
    CHECK(trainer.callback<Witness>().callback.empty());
    CHECK(trainer.callback<Witness>().heard.back() == "TrainEnd");
  }
}

struct ThrowsAgain {
  void on(const etude::StepEnd&) { throw Boom("first"); }
  void on(const etude::TrainError&) { throw Boom("second"); }
  void on(const etude::EpochEnd&) { throw Boom("third"); }
  void on(const etude::TrainEnd&) { throw Boom("fourth"); }
};

TEST_CASE("an exception while another ends the training hides neither the first one nor an end event") {
  etude::Trainer<ThrowsAgain, Witness> trainer(toy::options(toy::arguments()));
  CHECK_THROWS_WITH_AS(trainer.train(), "first", Boom);
  CHECK(trainer.callback<Witness>().from_error() == "TrainError EpochEnd TrainingRunEpochEnd Log TrainEnd");
}

struct ThrowsANumber {
  void on(const etude::StepEnd&) { throw 7; }
};

TEST_CASE("exceptions need not derive from std::exception") {
  etude::Trainer<ThrowsANumber, Witness> trainer(toy::options(toy::arguments()));
  CHECK_THROWS_AS(trainer.train(), int);
  CHECK(trainer.callback<Witness>().callback == "ThrowsANumber");
  CHECK(trainer.callback<Witness>().what == "an exception that isn't a std::exception");
}

}  // namespace loop_event_source_test
