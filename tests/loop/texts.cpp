// Invalid UTF-8, which JSON can't hold, and numbers that aren't finite, wherever they can enter a training.

#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>

#include "common/fault_of.hpp"
#include "common/printed.hpp"
#include "common/toy.hpp"
#include "etude/base/error.hpp"
#include "etude/callbacks/file_logger.hpp"
#include "etude/callbacks/log_metrics.hpp"
#include "etude/callbacks/predictions_to_csv.hpp"
#include "etude/checkpoint/resume.hpp"

namespace loop_texts_test {

using toy::fault_of;

const std::string bad_name = "the name of a metric is 'caf\\xe9': must be UTF-8";

etude::TrainingArguments saving_to(const toy::Folder& folder) {
  auto args = toy::arguments();
  toy::save_to(folder, args);
  args.log_level = etude::LogLevel::warning;
  return args;
}

struct LogsBadly {
  void on(const etude::StepEnd& e) { e.log("caf\xE9", 1); }
};
struct ChangesLogsBadly {
  void on(etude::Log& e) { e.logs["caf\xE9"] = 1; }
};

TEST_CASE("a log name that isn't UTF-8 is refused where it is logged, naming its callback") {
  const toy::Folder folder;
  const auto fault_and_text = [&](auto callback) {
    etude::Trainer<decltype(callback)> trainer(toy::options(saving_to(folder)));
    std::string fault;
    const auto text = toy::printed([&] { fault = fault_of<etude::ArgumentError>([&] { trainer.train(); }); },
                                   STDERR_FILENO);
    return fault + "\n" + text;
  };
  const auto of_log = fault_and_text(LogsBadly{});
  CHECK(of_log.starts_with(bad_name + "\n"));
  CHECK(of_log.find("LogsBadly threw in StepEnd: " + bad_name) != std::string::npos);
  const auto of_change = fault_and_text(ChangesLogsBadly{});
  CHECK(of_change.starts_with(bad_name + "\n"));
  CHECK(of_change.find("ChangesLogsBadly threw in Log: " + bad_name) != std::string::npos);
}

TEST_CASE("names of metrics, datasets and metric prefixes that aren't UTF-8 are refused") {
  auto options = toy::options(toy::arguments());
  options.compute_metrics = [](const etude::EvalPrediction&) { return etude::Metrics{{"caf\xE9", 1}}; };
  CHECK(fault_of<etude::ArgumentError>([&] { etude::Trainer<>(options).evaluate(); }) == bad_name);
  options.compute_metrics = {};
  CHECK(fault_of<etude::ArgumentError>(
            [&] { etude::Trainer<>(options).evaluate({.metric_key_prefix = "caf\xE9"}); }) == bad_name);
  CHECK(fault_of<etude::ArgumentError>([&] {
          etude::Trainer<>(options).predict(toy::dataset(1), {.metric_key_prefix = "caf\xE9"});
        }) == bad_name);
  options.eval_dataset = {{"good", toy::dataset(1)}, {"caf\xE9", toy::dataset(1)}};
  CHECK(fault_of<etude::ArgumentError>([&] { etude::Trainer<> trainer(options); }) ==
        "eval_dataset has the name 'caf\\xe9': must be UTF-8");
}

TEST_CASE("arguments that aren't UTF-8 are refused") {
  auto args = toy::arguments();
  args.run_name = "caf\xE9";
  args.label_names = {"labels", "\xFF"};
  CHECK(fault_of<etude::ArgumentError>([&] { etude::Trainer<> trainer(toy::options(args)); }) ==
        "run_name is 'caf\\xe9': must be UTF-8\nlabel_names is '\\xff': must be UTF-8");
}

struct KeepsABadText {
  ETUDE_STRUCT(KeepsABadText, (std::string, text, "what it has", ""));
  void on(const etude::StepEnd&) { text = "caf\xE9"; }
};

struct LogsWithoutName {
  void on(const etude::StepEnd& e) { e.log("", 1); }
};

TEST_CASE("an empty log name is refused") {
  etude::Trainer<LogsWithoutName> trainer(toy::options(toy::arguments()));
  CHECK(fault_of<etude::ArgumentError>([&] { trainer.train(); }) ==
        "the name of a logged value is empty: must have at least one character");
}

TEST_CASE("the state of a callback loses only invalid UTF-8, and that is reported") {
  const toy::Folder folder;
  etude::Trainer<KeepsABadText> trainer(toy::options(saving_to(folder)));
  const auto text = toy::printed([&] { trainer.train(); }, STDERR_FILENO);
  CHECK(text.find(
            "the state of KeepsABadText has 'caf\\xe9', which isn't UTF-8: in the checkpoint those bytes are "
            "replaced\n") != std::string::npos);
  CHECK(trainer.callback<KeepsABadText>().text == "caf\xE9");
  const auto state = etude::load_trainer_state(folder / "checkpoint-2");
  CHECK(state.stateful_callbacks["KeepsABadText"]["attributes"]["text"] == "caf\xEF\xBF\xBD");
}

struct StopsBadly {
  void on(const etude::StepEnd&) { throw etude::StopTraining("caf\xE9"); }
};
struct FailsBadly {
  void on(const etude::StepEnd&) { throw std::runtime_error("caf\xE9"); }
};
struct Listens {
  std::string what;
  void on(const etude::TrainError& e) { what = e.what; }
};

TEST_CASE("a reason to stop and the text of an exception may be anything") {
  const toy::Folder folder;
  etude::Trainer<StopsBadly> stops(toy::options(saving_to(folder)));
  CHECK(stops.train().stop_reason == "caf\xE9");
  CHECK(toy::names_in(folder / "").contains("checkpoint-1"));
  etude::Trainer<FailsBadly, Listens> fails(toy::options(toy::arguments()));
  CHECK_THROWS_WITH(fails.train(), "caf\xE9");
  CHECK(fails.callback<Listens>().what == "caf\xEF\xBF\xBD");
}

struct MinusNaN {
  void on(const etude::StepEnd& e) { e.log("mine", -std::numeric_limits<double>::quiet_NaN()); }
  void on(etude::Log& e) { e.logs["written"] = -std::numeric_limits<double>::quiet_NaN(); }
};

TEST_CASE("a NaN has no sign wherever it is printed or written") {
  const toy::Folder folder;
  auto args = saving_to(folder);
  args.logging_strategy = etude::IntervalStrategy::steps;
  args.logging_steps = 1;
  args.logging_nan_inf_filter = false;
  auto options = toy::options(args);
  const auto minus_nan = -std::numeric_limits<float>::quiet_NaN();
  options.train_dataset = {torch::full({2, 1}, minus_nan), torch::full({2, 1}, minus_nan)};
  options.eval_dataset = options.train_dataset;
  options.compute_metrics = [](const etude::EvalPrediction&) {
    return etude::Metrics{{"metric", -std::numeric_limits<double>::quiet_NaN()}};
  };
  etude::Trainer<MinusNaN, etude::CSVLoggerCallback, etude::JSONLinesLoggerCallback,
                 etude::PredictionsToCSVCallback, etude::LogMetricsCallback>
      trainer(options);
  etude::Metrics evaluated, predicted;
  const auto text = toy::printed([&] {
    const auto result = trainer.train();
    fmt::print("{} {}\n", result.training_loss, result.metrics.at("train_loss"));
    evaluated = trainer.evaluate();
    predicted = trainer.predict(options.train_dataset).metrics;
    fmt::print("{} {} {}\n", evaluated.at("eval_loss"), evaluated.at("eval_metric"),
               predicted.at("test_metric"));
    trainer.log_metrics("eval", {{"loss", -std::numeric_limits<double>::quiet_NaN()}});
  });
  CHECK(text.find("nan") != text.npos);
  CHECK(text.find("-nan") == text.npos);
  int nans = 0;
  for (const auto& entry : trainer.state().log_history)
    for (const auto& [name, value] : entry)
      if (value.is_number_float() && std::isnan(value.get<double>())) {
        ++nans;
        CHECK_FALSE(std::signbit(value.get<double>()));
      }
  CHECK(nans > 3);
  int files = 0;
  for (const auto& file : std::filesystem::recursive_directory_iterator(folder / "")) {
    if (!file.is_regular_file()) continue;
    const auto name = file.path().extension();
    if (name != ".csv" && name != ".json" && name != ".jsonl") continue;
    ++files;
    CAPTURE(file.path().string());
    CHECK(toy::read_text(file.path()).find("-nan") == std::string::npos);
    CHECK(toy::read_text(file.path()).find("-NaN") == std::string::npos);
  }
  CHECK(files > 10);
}

}  // namespace loop_texts_test
