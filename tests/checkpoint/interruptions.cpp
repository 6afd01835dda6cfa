#include "common/full_run.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>

#include <map>
#include <random>

#include "common/folder.hpp"
#include "common/quick_files.hpp"
#include "etude/checkpoint/folder.hpp"
#include "etude/checkpoint/resume.hpp"
#include "etude/checkpoint/resume_point.hpp"

namespace {

// Sends SIGTERM at the n-th event of a type, and writes down the weights after each step.
struct Interrupter {
  std::string event = {};
  int n = 1;
  std::map<std::int64_t, std::string> weights_at = {};

  template <std::derived_from<etude::Context> Event>
  void on(const Event& e) {
    if constexpr (std::same_as<Event, etude::StepEnd>)
      for (const auto& [name, tensor] : e.model.state_dict())
        weights_at[e.state.global_step] += fmt::format("{} {}\n", name, toy::checksum_of(tensor));
    if (etude::short_type_name<Event>() == event && --n == 0) ::raise(SIGTERM);
  }
};

using Trainer = etude::Trainer<toy::Quiet, toy::Diary, etude::EarlyStoppingCallback, Interrupter>;

struct Run {
  std::mt19937 engine;
  std::unique_ptr<Trainer> trainer;

  Run(const std::string& folder, Interrupter interrupter = {}, bool save_on_exception = false,
      std::int64_t patience = 9) {
    auto options = toy::full_options(folder, engine);
    options.args.num_train_epochs = 1;
    options.args.dataloader_num_workers = 2;
    options.args.eval_steps = 1;
    options.args.load_best_model_at_end = true;
    options.args.greater_is_better = true;  // so that the best is not the last
    options.args.save_total_limit = 2;
    options.args.save_on_exception = save_on_exception;
    options.file_system = std::make_shared<toy::QuickFiles>();
    trainer = std::make_unique<Trainer>(options, toy::Diary{.engine = &engine},
                                        etude::EarlyStoppingCallback{.early_stopping_patience = patience},
                                        interrupter);
  }
  // False if it was interrupted.
  bool train() {
    try {
      trainer->train({.resume_from_checkpoint = etude::if_any});
      return true;
    } catch (const etude::Interrupted&) {
      return false;
    }
  }
};

// A program's own handler, which returns.
struct Handler {
  void (*before)(int) = ::signal(SIGTERM, [](int) {});
  ~Handler() { ::signal(SIGTERM, before); }
};

TEST_CASE("a checkpoint in the middle of a group has the model of its step, so that it stays the best") {
  const Handler handler;
  const toy::Folder folder, other;
  Run unbroken(other);
  REQUIRE(unbroken.train());
  const auto best = *unbroken.trainer->state().best_global_step;
  REQUIRE(best < 6);
  const auto& weights_at = unbroken.trainer->callback<Interrupter>().weights_at;

  // Each group has 3 ends of a micro-batch that isn't the last.
  Run run(folder, {.event = "SubstepEnd", .n = static_cast<int>(best) * 3 + 2});
  REQUIRE_FALSE(run.train());
  etude::FolderReader checkpoint(folder / fmt::format("checkpoint-{}", best));
  const auto point = etude::read_resume_point(checkpoint);
  CHECK(point.progress->position.micro_batches == 2);
  std::map<std::string, torch::Tensor> model(point.model.begin(), point.model.end());
  std::string text;
  for (const auto& [name, tensor] : run.trainer->model().state_dict())
    text += fmt::format("{} {}\n", name, toy::checksum_of(model.at(name)));
  CHECK(text == weights_at.at(best));
  CHECK(toy::weights(*run.trainer) != text);  // the running means have gone on

  Run again(folder);
  REQUIRE(again.train());
  CHECK(toy::outcome(*again.trainer) == toy::outcome(*unbroken.trainer));
}

TEST_CASE("a training that is interrupted while it finds back to where it was loses nothing") {
  const Handler handler;
  const toy::Folder other;
  Run unbroken(other);
  REQUIRE(unbroken.train());
  const auto expected = toy::outcome(*unbroken.trainer);
  for (const std::string first : {"SubstepEnd", "StepEnd"})
    for (const std::string second :
         {"CheckpointLoaded", "TrainBegin", "EpochBegin", "BatchFetched", "StepBegin"})
      for (const bool save_on_exception : {false, true}) {
        CAPTURE(first);
        CAPTURE(second);
        const toy::Folder folder;
        Run run(folder, {.event = first, .n = 5}, save_on_exception);
        REQUIRE_FALSE(run.train());
        for (int i = 0; i < 2; ++i) {
          Run again(folder, {.event = second}, save_on_exception);
          REQUIRE_FALSE(again.train());
        }
        Run last(folder, {}, save_on_exception);
        REQUIRE(last.train());
        CHECK(toy::outcome(*last.trainer) == expected);
      }
}

TEST_CASE(
    "a training that is interrupted while it comes to an early end ends as if nothing had come between") {
  const Handler handler;
  const toy::Folder other;
  Run unbroken(other, {}, false, 2);
  REQUIRE(unbroken.train());
  REQUIRE(unbroken.trainer->state().global_step == 3);  // of the 6 of the epoch
  const auto expected = toy::outcome(*unbroken.trainer);
  const std::map<std::string, int> moments = {
      {"StepEnd", 3}, {"Evaluate", 3}, {"Save", 3}, {"EpochEnd", 1}, {"TrainingRunEpochEnd", 1},
      {"Stop", 1},    {"TrainEnd", 1}};
  for (const auto& stop : moments)
    for (const auto& later : moments) {
      const auto& [first, n] = stop;
      const auto& second = later.first;
      CAPTURE(stop.first);
      CAPTURE(second);
      const toy::Folder folder;
      Run run(folder, {.event = first, .n = n}, false, 2);
      REQUIRE_FALSE(run.train());
      Run again(folder, {.event = second}, false, 2);
      again.train();  // Not every event comes again.
      Run last(folder, {}, false, 2);
      REQUIRE(last.train());
      CHECK(toy::outcome(*last.trainer) == expected);
    }
}

}  // namespace
