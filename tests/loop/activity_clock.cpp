#include "etude/loop/activity_clock.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "common/toy.hpp"
#include "etude/io/file_system.hpp"
#include "etude/loop/activity_trace.hpp"

namespace loop_activity_clock_test {

using enum etude::TimedActivity;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

void sleep_for_ms(int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

TEST_CASE("the activities of a training take at least 98 % of its wall time, and all of them all of it") {
  double largest_share = 0;
  // Another process may occupy the processor in any activity, so one undisturbed training of ten is enough.
  for (int attempt = 0; attempt < 10 && largest_share < 0.98; ++attempt) {
    auto args = toy::arguments();
    args.num_train_epochs = 4;
    args.logging_strategy = etude::IntervalStrategy::epoch;
    args.eval_strategy = etude::IntervalStrategy::epoch;
    auto options = toy::options(args, 100, 4);
    options.model =
        torch::nn::Sequential(torch::nn::Linear(1, 64), torch::nn::ReLU(), torch::nn::Linear(64, 1));
    etude::Trainer<> trainer(options);
    const auto begin = Clock::now();
    const auto output = trainer.train();
    const double wall = seconds_since(begin);
    REQUIRE(output.global_step == 400);
    const auto& times = output.time_by_activity;
    CHECK(times.total() <= wall);
    for (const auto activity : {setup, data, forward, backward, update, evaluation, logging, callbacks})
      CHECK(times[activity] > 0);
    CHECK(times[communication] + times[saving] < 0.01 * wall);
    largest_share = std::max(largest_share, (times.total() - times[other]) / wall);
  }
  CHECK(largest_share >= 0.98);
}

TEST_CASE("the time of a training by step() has activities, too, and that of the program between its steps") {
  auto args = toy::arguments();
  args.max_steps = 5;
  auto options = toy::options(args, 10, 2);
  const auto begin = Clock::now();
  etude::Trainer<> trainer(options);
  for (int step = 0; step < 5; ++step) {
    trainer.step(torch::randn({2, 1}), torch::randn({2, 1}));
    sleep_for_ms(20);
  }
  const auto times = trainer.finish().time_by_activity;
  CHECK(times.total() <= seconds_since(begin));
  CHECK(times[program] >= 0.1);
  CHECK(times[program] <= 0.15);
  for (const auto activity : {setup, forward, backward, update, callbacks}) CHECK(times[activity] > 0);
  CHECK(times[other] <= 0.02 * times.total());
}

/// Sleeps in one place, on request.
struct Sleeper {
  int in_step_end = 0, in_prediction = 0;
  void on(const etude::StepEnd& e) {
    sleep_for_ms(in_step_end);
    if (in_prediction > 0 && e.state.global_step == 1) e.trainer.evaluate();
  }
  void on(const etude::PredictionStep&) { sleep_for_ms(in_prediction); }
};

struct SleepyLineImpl : toy::LineImpl {
  torch::Tensor forward(torch::Tensor x) {
    sleep_for_ms(is_training() ? in_training : in_evaluation);
    return LineImpl::forward(x);
  }
  int in_training = 0, in_evaluation = 0;
};
TORCH_MODULE(SleepyLine);

TEST_CASE("time counts for the innermost activity: forward, callbacks, and evaluations that they call") {
  auto options = toy::options(toy::arguments(), 2, 2);
  SleepyLine model;
  model->in_training = 60;
  model->in_evaluation = 40;
  options.model = model;
  etude::Trainer<Sleeper> trainer(options, Sleeper{.in_step_end = 20, .in_prediction = 30});
  const auto times = trainer.train().time_by_activity;
  CHECK(times[forward] >= 0.120);     // 2 x 60 ms
  CHECK(times[evaluation] >= 0.080);  // 2 x 40 ms
  CHECK(times[callbacks] >= 0.100);   // 2 x 20 ms and 2 x 30 ms
  CHECK(times[callbacks] < 0.180);    // excludes the model's time
  CHECK(times[data] + times[update] + times[backward] < 0.060);
}

TEST_CASE("another training starts from zero, and evaluations outside of trainings don't count") {
  etude::Trainer<Sleeper> trainer(toy::options(toy::arguments(), 2), Sleeper{.in_step_end = 30});
  trainer.train();
  trainer.callback<Sleeper>().in_step_end = 0;
  const auto second = trainer.train().time_by_activity;
  CHECK(second[callbacks] < 0.030);
  trainer.callback<Sleeper>().in_prediction = 5;
  trainer.evaluate();
  CHECK(trainer.time_by_activity().seconds == second.seconds);
}

nlohmann::json read(const std::filesystem::path& file) {
  std::ifstream in(file);
  return nlohmann::json::parse(in);
}

struct Slice {
  std::string name;
  double begin = 0, end = 0;
  bool holds(const Slice& other) const { return begin <= other.begin && other.end <= end; }
};

std::vector<Slice> slices(const nlohmann::json& trace) {
  std::vector<Slice> all;
  for (const auto& each : trace.at("traceEvents"))
    if (each.at("ph") == "X")
      all.push_back(
          {each.at("name"), each.at("ts"), each.at("ts").get<double>() + each.at("dur").get<double>()});
  return all;
}

const Slice& first(const std::vector<Slice>& all, const std::string& name) {
  const auto found = std::ranges::find(all, name, &Slice::name);
  if (found == all.end()) throw std::out_of_range("no slice is called " + name);
  return *found;
}

TEST_CASE("a trace has numbered steps with their activities, events and callbacks within each other") {
  const toy::Folder folder;
  auto args = toy::arguments();
  args.output_dir = folder;
  args.trace_file = "traces/one.json";
  etude::Trainer<Sleeper, etude::RuntimeCallbacks> trainer(toy::options(args, 3), Sleeper{.in_step_end = 2});
  trainer.train();
  const auto all = slices(read(folder / "traces/one.json"));
  const auto& step = first(all, "step 2");
  std::map<std::string, int> within;
  for (const auto& each : all)
    if (step.holds(each)) ++within[each.name];
  for (const char* name : {"data", "forward", "backward", "update", "StepEnd", "Sleeper"}) {
    CAPTURE(name);
    CHECK(within[name] == 1);
  }
  CHECK(first(all, "StepEnd").holds(first(all, "Sleeper")));
  CHECK(first(all, "forward").holds(first(all, "backward")));
  CHECK(first(all, "Sleeper").end - first(all, "Sleeper").begin >= 2000);  // microseconds
  CHECK(first(all, "step 1").end <= step.begin);
  CHECK(first(all, "TrainEnd").begin >= first(all, "step 3").end);
}

struct Thrower {
  void on(const etude::StepEnd& e) {
    if (e.state.global_step == 2) throw std::runtime_error("no more");
  }
};

TEST_CASE("a training that ends by an exception leaves a whole trace") {
  const toy::Folder folder;
  auto args = toy::arguments();
  args.output_dir = folder;
  args.trace_file = "trace.json";
  etude::Trainer<Thrower> trainer(toy::options(args, 3));
  CHECK_THROWS_WITH(trainer.train(), "no more");
  const auto all = slices(read(folder / "trace.json"));
  CHECK(first(all, "step 2").holds(first(all, "StepEnd")) == false);  // that is of step 1
  CHECK(first(all, "step 2").end > first(all, "step 1").end);
  CHECK(trainer.time_by_activity()[forward] > 0);
}

TEST_CASE("a trace keeps its first slices, and counts the others") {
  const toy::Folder folder;
  etude::ActivityTrace trace(2);
  const auto now = etude::ActivityTrace::Clock::now();
  for (int i = 0; i < 5; ++i) trace.add("say \"step\"", "training", i, now);
  CHECK(trace.left_out() == 3);
  trace.save(etude::default_file_system(), folder / "trace.json", 1);
  const auto json = read(folder / "trace.json");
  CHECK(json.at("otherData").at("slices_left_out") == 3);
  const auto all = slices(json);
  REQUIRE(all.size() == 2);
  CHECK(all[1].name == "say \"step\" 1");
  CHECK(json.at("traceEvents").at(1).at("pid") == 1);
}

TEST_CASE("a trace that can't be written doesn't end the program, and one whose folder can't be is refused") {
  const toy::Folder folder;
  auto args = toy::arguments();
  args.output_dir = folder;
  args.trace_file = "trace.json";
  std::filesystem::create_directories(folder / "trace.json/in_its_place");
  etude::Trainer<> trainer(toy::options(args, 2));
  CHECK(trainer.train().global_step == 2);
  std::ofstream(folder / "file").put('x');
  args.trace_file = "file/trace.json";
  etude::Trainer<> refused(toy::options(args, 2));
  CHECK_THROWS_AS(refused.train(), etude::CheckpointError);
}

}  // namespace loop_activity_clock_test
