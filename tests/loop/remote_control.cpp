#include "etude/loop/remote_control.hpp"

#include <doctest/doctest.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>

#include "common/child.hpp"
#include "common/folder.hpp"
#include "common/gate.hpp"
#include "common/toy.hpp"
#include "etude/trainer.hpp"

namespace loop_remote_control_test {

/// Pauses the training at a step, and lets the test know.
struct Pauses {
  std::int64_t at;
  toy::Gate* reached;
  std::atomic<std::int64_t>* steps;
  void on(const etude::StepEnd& e) const {
    *steps = e.state.global_step;
    if (e.state.global_step != at) return;
    e.trainer.pause();
    reached->open();
  }
};

struct Training {
  toy::Gate reached;
  std::atomic<std::int64_t> steps = 0;
  etude::TrainingArguments args = toy::arguments();

  etude::Trainer<Pauses> trainer(std::int64_t pause_at) {
    return etude::Trainer<Pauses>(toy::options(args, 6), Pauses{pause_at, &reached, &steps});
  }
  void stays_at(std::int64_t step) {
    std::this_thread::sleep_for(std::chrono::milliseconds(120));
    CHECK(steps == step);
  }
};

TEST_CASE("a training that is paused makes no further step until it is resumed, and loses nothing") {
  Training training;
  auto trainer = training.trainer(3);
  etude::TrainOutput output;
  std::thread thread([&] { output = trainer.train(); });
  CHECK(training.reached.wait());
  training.stays_at(3);
  CHECK(trainer.is_paused());
  trainer.resume();
  thread.join();
  CHECK(output.global_step == 6);
  CHECK(output.stop_reason == "");
  CHECK(!trainer.cancel());  // too late: it must not stop the next training
  trainer.callback<Pauses>().at = -1;
  CHECK(trainer.train().global_step == 6);
}

TEST_CASE("a training that is paused before it begins waits before its first step") {
  Training training;
  auto trainer = training.trainer(-1);
  trainer.pause();
  std::thread thread([&] { trainer.train(); });
  training.stays_at(0);
  trainer.resume();
  thread.join();
  CHECK(training.steps == 6);
}

TEST_CASE(
    "a training that is cancelled, paused or not, stops within a step with its reason and a checkpoint") {
  for (const bool is_paused : {true, false}) {
    toy::Folder folder;
    Training training;
    toy::save_to(folder, training.args, 10'000'000);
    training.args.num_train_epochs = 1'000'000;
    auto trainer = training.trainer(is_paused ? 2 : -1);
    etude::TrainOutput output;
    std::thread thread([&] { output = trainer.train(); });
    if (is_paused) {
      CHECK(training.reached.wait());
      CHECK(trainer.cancel("no more"));
    } else {
      while (training.steps == 0 || !trainer.cancel("no more")) std::this_thread::yield();
    }
    thread.join();
    CHECK(output.stop_reason == "no more");
    CHECK(output.global_step == training.steps);
    if (is_paused) CHECK(output.global_step == 2);
    CHECK(std::filesystem::exists(std::string(folder) + "/checkpoint-" + std::to_string(output.global_step)));
  }
}

TEST_CASE("step() stops without another update when it is cancelled, before and within a group") {
  for (const int group : {1, 3}) {
    auto args = toy::arguments();
    args.gradient_accumulation_steps = group;
    etude::Trainer<> trainer({.model = toy::Line(), .args = args, .loss = torch::nn::MSELoss()});
    const auto one = torch::ones({1, 1});
    trainer.step(one, one);
    std::thread([&] { CHECK(trainer.cancel("that will do")); }).join();
    const auto output = trainer.step(one, one);
    CHECK(output.should_stop);
    CHECK(output.stop_reason == "that will do");
    CHECK(output.global_step == (group == 1 ? 1 : 0));
    CHECK(!output.loss.defined());
    CHECK(trainer.finish().stop_reason == "that will do");
  }
}

TEST_CASE("a signal ends a training that is paused, with a checkpoint" *
          doctest::skip(!toy::child_can_start_threads)) {
  toy::Folder folder;
  CHECK(toy::end_of_child([&] {
          Training training;
          toy::save_to(folder, training.args, 100);
          auto trainer = training.trainer(4);
          std::jthread([&] {
            training.reached.wait();
            ::kill(::getpid(), SIGTERM);
          }).detach();
          trainer.train();
          return 0;
        }) == "signal 15");
  CHECK(std::filesystem::exists(std::string(folder) + "/checkpoint-4"));
}

}  // namespace loop_remote_control_test
