#include "etude/callbacks/interval_timer.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/fault_of.hpp"
#include "common/folder.hpp"
#include "common/toy.hpp"
#include "etude/base/error.hpp"

namespace callbacks_interval_timer_test {

using etude::Interval;

/// The steps at which an interval was due.
struct Listener {
  ETUDE_STRUCT(Listener, (Interval, interval, "how often"), (etude::IntervalTimer, timer, "its timer"),
               (std::vector<std::int64_t>, steps, "when it was due"));
  void on(const etude::TrainBegin& e) {
    timer.begin(e, interval);
    if (e.state.global_step == 0) steps.clear();
  }
  void on(const etude::StepEnd& e) {
    if (timer.due(e, interval)) steps.push_back(e.state.global_step);
  }
};
using Steps = std::vector<std::int64_t>;

/// 10 examples in batches of 1 and groups of 2: 5 steps per epoch, 4 epochs.
etude::TrainerOptions twenty_steps() {
  auto options = toy::options(toy::arguments(), 10);
  options.args.num_train_epochs = 4;
  options.args.gradient_accumulation_steps = 2;
  options.args.learning_rate = 0.01;
  return options;
}

Steps due(const Interval& interval) {
  etude::Trainer<Listener> trainer(twenty_steps(), Listener{.interval = interval});
  trainer.train();
  const auto first = trainer.callback<Listener>().steps;
  trainer.train();
  CHECK(trainer.callback<Listener>().steps == first);  // It restarts.
  return first;
}

TEST_CASE("a timer is due where its interval ends, in each unit, and from the beginning in every training") {
  CHECK(due(6) == Steps{6, 12, 18});
  CHECK(due(0.25) == Steps{5, 10, 15, 20});
  CHECK(due(0.3) == Steps{6, 12, 18});
  CHECK(due("1dur") == Steps{20});
  CHECK(due("1ep") == Steps{5, 10, 15, 20});
  CHECK(due("2ep") == Steps{10, 20});
  CHECK(due("0.2ep").size() == 20);
  CHECK(due("0.6ep") == Steps{3, 6, 9, 12, 15, 18});
  CHECK(due("4sp") == Steps{2, 4, 6, 8, 10, 12, 14, 16, 18, 20});
  CHECK(due("15sp") == Steps{8, 15});
  CHECK(due("1h") == Steps{});
  CHECK(due(-1) == Steps{});
  CHECK(due(21) == Steps{});
}

/// Checks its timer before the end of each step; one step may be abandoned.
struct WithinSteps {
  ETUDE_STRUCT(WithinSteps, (Interval, interval, "how often"), (etude::IntervalTimer, timer, "its timer"),
               (std::int64_t, given_up, "the step that ends the training; 0: none", 0));
  void on(const etude::TrainBegin& e) { timer.begin(e, interval, "interval"); }
  void on(const etude::PreOptimizerStep& e) {
    const auto step = e.state.global_step + 1;
    if (timer.due_in_step(e, interval)) steps.push_back(step);
    if (step == given_up) throw etude::StopTraining("enough");
  }
  Steps steps = {};
};

TEST_CASE("steps are counted from the beginning, also by a timer added later") {
  struct Late {
    Interval interval;
    etude::IntervalTimer timer = {};
    Steps steps = {};
    void on(const etude::StepEnd& e) {
      if (e.state.global_step >= 12 && timer.due(e, interval)) steps.push_back(e.state.global_step);
    }
  };
  const auto due_late = [](const Interval& interval) {
    etude::Trainer<Late> trainer(twenty_steps(), Late{.interval = interval});
    trainer.train();
    return trainer.template callback<Late>().steps;
  };
  CHECK(due_late(6) == Steps{12, 18});
  CHECK(due_late(8) == Steps{16});
  CHECK(due_late("6sp") == Steps{15, 18});  // the timer doesn't know of earlier examples
}

TEST_CASE("before a step ends, an interval of steps is due within it, any other in the next step") {
  const auto due_within = [](const Interval& interval) {
    etude::Trainer<WithinSteps> trainer(twenty_steps(), WithinSteps{.interval = interval});
    trainer.train();
    return trainer.callback<WithinSteps>().steps;
  };
  CHECK(due_within(6) == Steps{6, 12, 18});
  CHECK(due_within(0.25) == Steps{5, 10, 15, 20});
  CHECK(due_within("1ep") == Steps{6, 11, 16});
  CHECK(due_within("15sp") == Steps{9, 16});
  CHECK(due_within("1h") == Steps{});
}

TEST_CASE("a step that was checked and abandoned is checked again when the run is resumed") {
  const toy::Folder folder;
  auto options = twenty_steps();
  toy::save_to(folder, options.args, 4);
  etude::Trainer<WithinSteps> first(options, WithinSteps{.interval = 3, .given_up = 6});
  CHECK(first.train().global_step == 5);
  options.model = toy::Line();
  etude::Trainer<WithinSteps> resumed(options, WithinSteps{.interval = 3});
  resumed.train({.resume_from_checkpoint = (folder / "checkpoint-5").string()});
  CHECK(resumed.callback<WithinSteps>().steps == Steps{6, 9, 12, 15, 18});
}

TEST_CASE("an interval that can't end is refused by name when training begins") {
  const auto refusal = [](const Interval& interval) -> std::string {
    return toy::fault_of<etude::ArgumentError>(
        [&] { etude::Trainer<WithinSteps>(twenty_steps(), WithinSteps{.interval = interval}).train(); });
  };
  CHECK(refusal(0.0) ==
        "interval is 0: must be a whole number of steps >= 1, or a fraction of all steps between 0 and 1");
  CHECK(refusal("-2s") == "interval is -2s: must be positive and finite");
  CHECK(refusal("10tok") ==
        "interval is 10tok: must be in another unit, because include_num_input_tokens_seen is no");
}

TEST_CASE("an interval of tokens is an error if they aren't counted") {
  etude::Trainer<Listener> trainer(twenty_steps(), Listener{.interval = "10tok"});
  CHECK_THROWS_WITH_AS(trainer.train(),
                       "the interval is 10tok: must be in another unit, because "
                       "state.num_input_tokens_seen isn't counted",
                       etude::ArgumentError);
}

/// Sleeps at each step.
struct Slow {
  void on(const etude::StepBegin&) { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }
};

TEST_CASE("a time is measured by the training's clock") {
  etude::Trainer<Slow, Listener> trainer(twenty_steps(), Listener{.interval = "50ms"});
  trainer.train();
  const auto& steps = trainer.callback<Listener>().steps;
  CHECK(steps.size() >=
        6);  // 20 steps of at least 20 ms contain 8 intervals of 50 ms; a slow step may end two intervals
  CHECK(steps.size() < 20);
  CHECK(steps.front() <= 3);
}

TEST_CASE("the time before a checkpoint counts in a resumed run") {
  const toy::Folder folder;
  auto options = twenty_steps();
  toy::save_to(folder, options.args, 10);
  etude::Trainer<Slow, Listener>(options, Listener{.interval = "1h"}).train();
  options.model = toy::Line();
  etude::Trainer<Slow, Listener> resumed(options, Listener{.interval = "1h"});
  resumed.train({.resume_from_checkpoint = (folder / "checkpoint-10").string()});
  CHECK(resumed.callback<Listener>().timer.passed >= .4);  // 10 steps of at least 20 ms, twice
}

TEST_CASE("if checked rarely, it is due once for all intervals that have passed") {
  struct AtEpochs {
    etude::IntervalTimer timer = {};
    Steps steps = {};
    void on(const etude::TrainBegin& e) { timer.begin(e, 3); }
    void on(const etude::EpochEnd& e) {
      if (timer.due(e, 3)) steps.push_back(e.state.global_step);
    }
  };
  auto options = twenty_steps();
  options.args.gradient_accumulation_steps = 10;  // one step per epoch
  etude::Trainer<AtEpochs> trainer(options);
  trainer.train();
  CHECK(trainer.callback<AtEpochs>().steps == Steps{3});
}

TEST_CASE("a resumed run continues counting, in any unit") {
  for (const Interval& interval : {Interval(6), Interval("0.6ep"), Interval("15sp")}) {
    const toy::Folder folder;
    auto options = twenty_steps();
    toy::save_to(folder, options.args, 7);
    etude::Trainer<Listener> whole(options, Listener{.interval = interval});
    whole.train();
    options.model = toy::Line();
    etude::Trainer<Listener> resumed(options, Listener{.interval = interval});
    resumed.train({.resume_from_checkpoint = (folder / "checkpoint-7").string()});
    CHECK(resumed.callback<Listener>().steps == whole.callback<Listener>().steps);

    // A different unit: its progress is unknown, but it isn't due immediately.
    options.model = toy::Line();
    etude::Trainer<Listener> other(options, Listener{.interval = "1h"});
    other.train({.resume_from_checkpoint = (folder / "checkpoint-7").string()});
    auto before = whole.callback<Listener>().steps;
    std::erase_if(before, [](std::int64_t step) { return step > 7; });
    CHECK(other.callback<Listener>().steps == before);
  }
}

/// A callback that doesn't save its timer.
struct Forgetful {
  Interval interval;
  etude::IntervalTimer timer = {};
  Steps steps = {};
  void on(const etude::TrainBegin& e) { timer.begin(e, interval); }
  void on(const etude::StepEnd& e) {
    if (timer.due(e, interval)) steps.push_back(e.state.global_step);
  }
};

TEST_CASE("a timer that isn't saved continues from the training's progress") {
  const toy::Folder folder;
  auto options = twenty_steps();
  toy::save_to(folder, options.args, 8);
  etude::Trainer<Forgetful>(options, Forgetful{.interval = "0.6ep"}).train();
  options.model = toy::Line();
  etude::Trainer<Forgetful> resumed(options, Forgetful{.interval = "0.6ep"});
  resumed.train({.resume_from_checkpoint = (folder / "checkpoint-8").string()});
  CHECK(resumed.callback<Forgetful>().steps == Steps{9, 12, 15, 18});
}

// A stream of one point in each epoch.
struct Once {
  bool is_over = false;
  void reset() { is_over = false; }
  std::optional<etude::Example> next() {
    if (std::exchange(is_over, true)) return std::nullopt;
    return etude::Example{torch::zeros({1}), torch::ones({1})};
  }
};

TEST_CASE("examples are counted beyond 2^63") {
  auto options = toy::options(toy::arguments());
  options.train_dataset = Once();
  options.args.per_device_train_batch_size = 1'000'000'000;
  options.args.gradient_accumulation_steps = 1'000'000;
  options.args.max_steps = 9300;  // times 1e15 examples, if the batches were full
  etude::Trainer<Listener> trainer(options, Listener{.interval = "1e15sp"});
  const auto output = trainer.train();
  CHECK(trainer.callback<Listener>().steps.size() == 9300);
  CHECK(output.metrics.at("train_samples_per_second") > 0);
}

}  // namespace callbacks_interval_timer_test
