#include "etude/callbacks/default_flow.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <map>
#include <string>
#include <thread>

#include "common/folder.hpp"
#include "common/toy.hpp"
#include "etude/reflect/command_line.hpp"

namespace callbacks_default_flow_test {

// The sequences in tests/events.cpp show the callback's requests and their order.

TEST_CASE("an interval of several steps fires only at its multiples") {
  auto args = toy::arguments();
  args.logging_strategy = etude::IntervalStrategy::steps;
  args.logging_steps = 3;
  etude::Trainer<> trainer(toy::options(args, 8));
  trainer.train();
  std::vector<std::int64_t> steps;
  for (const auto& line : trainer.state().log_history) steps.push_back(line.at("step").get<std::int64_t>());
  CHECK(steps == std::vector<std::int64_t>{3, 6, 8});
}

struct AsksAtTheLastStep {
  void on(const etude::StepEnd& e) {
    if (e.state.global_step == e.state.max_steps) e.control.should_log = true;
  }
};

TEST_CASE("other callbacks may request more") {
  etude::Trainer<AsksAtTheLastStep> trainer(toy::options(toy::arguments(), 3));
  trainer.train();
  CHECK(trainer.state().log_history.size() == 2);
}

/// The steps at which there was a log, an evaluation and a checkpoint.
struct Times {
  std::map<std::string, std::vector<std::int64_t>> steps = {};
  void on(const etude::Log& e) {
    if (e.logs.contains("loss")) steps["log"].push_back(e.state.global_step);
  }
  void on(const etude::Evaluate& e) { steps["evaluation"].push_back(e.state.global_step); }
  void on(const etude::Save& e) { steps["checkpoint"].push_back(e.state.global_step); }
};
using Steps = std::vector<std::int64_t>;

/// 5 steps per epoch, 3 epochs.
etude::TrainerOptions fifteen_steps(const std::vector<std::string>& words, const std::string& folder) {
  auto args = toy::arguments();
  args.output_dir = folder;
  args.num_train_epochs = 3;
  args.learning_rate = 0.01;
  args.logging_strategy = args.eval_strategy = etude::IntervalStrategy::steps;
  args.save_strategy = etude::SaveStrategy::steps;
  return toy::options(etude::parse_arguments(words, args), 5);
}

TEST_CASE("an interval may be in epochs, examples or shares, and the last step is evaluated once") {
  const toy::Folder folder;
  auto options =
      fifteen_steps({"--logging_steps", "0.4ep", "--eval_steps=6sp", "--save_steps=0.5dur"}, folder);
  etude::Trainer<Times> trainer(options);
  trainer.train();
  CHECK(trainer.callback<Times>().steps["log"] == Steps{2, 4, 6, 8, 10, 12, 14});
  CHECK(trainer.callback<Times>().steps["evaluation"] == Steps{6, 12, 15});
  CHECK(trainer.callback<Times>().steps["checkpoint"] == Steps{8, 15});
  CHECK(trainer.state().logging_steps == 0);
  CHECK(trainer.state().save_steps == 8);

  options = fifteen_steps({"--logging_steps=4", "--eval_steps=1ep", "--save_steps=1.5ep"}, folder);
  etude::Trainer<Times> epochs(options);
  epochs.train();
  CHECK(epochs.callback<Times>().steps["log"] == Steps{4, 8, 12});
  CHECK(epochs.callback<Times>().steps["evaluation"] == Steps{5, 10, 15});
  CHECK(epochs.callback<Times>().steps["checkpoint"] == Steps{8, 15});

  options = fifteen_steps({"--logging_steps=1ep", "--save_steps=0.6ep"}, folder);
  etude::Trainer<Times> resumed(options);
  resumed.train({.resume_from_checkpoint = (folder / "checkpoint-8").string()});
  CHECK(resumed.callback<Times>().steps["log"] == Steps{10, 15});
  CHECK(resumed.callback<Times>().steps["evaluation"] == Steps{10, 15});  // like the logs
  CHECK(resumed.callback<Times>().steps["checkpoint"] ==
        Steps{8, 9, 12, 15});  // the one it resumes from is announced, too
}

struct Slow {
  void on(const etude::StepBegin&) { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }
};

TEST_CASE("an interval may be a time") {
  const toy::Folder folder;
  etude::Trainer<Slow, Times> trainer(
      fifteen_steps({"--logging_steps=50ms", "--eval_steps=1h", "--save_steps=1h"}, folder));
  trainer.train();
  auto& steps = trainer.callback<Times>().steps;
  CHECK(steps["log"].size() >= 4);
  CHECK(steps["log"].size() < 15);
  CHECK(steps["evaluation"] == Steps{15});
  CHECK(steps["checkpoint"] == Steps{15});
}

TEST_CASE("an interval that never fires is an error, in its own unit") {
  etude::TrainingArguments args{.save_steps = "0ep", .logging_steps = "1.5dur"};
  CHECK(etude::faults(args) ==
        std::vector<std::string>{
            "logging_steps is 1.5dur: must be a whole number of steps >= 1, or a fraction of all steps "
            "between 0 and 1",
            "save_steps is 0ep: must be positive and finite"});
  args = {.save_steps = "1h30m", .logging_steps = 5};
  CHECK(etude::faults(args).empty());
  CHECK(etude::from_json_text<etude::TrainingArguments>(etude::to_json_text(args)) == args);
}

}  // namespace callbacks_default_flow_test
