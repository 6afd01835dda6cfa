#include "common/full_run.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <stdexcept>
#include <thread>

#include "common/child.hpp"
#include "common/folder.hpp"
#include "common/quick_files.hpp"
#include "common/toy.hpp"
#include "etude/callbacks/early_stopping.hpp"
#include "etude/callbacks/stochastic_weight_averaging.hpp"
#include "etude/checkpoint/resume.hpp"
#include "etude/checkpoint/resume_point.hpp"
#include "etude/io/folder.hpp"

namespace checkpoint_interruptions_test {

// A callback that sends SIGTERM at the n-th event of a type, and records the weights after each step.
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
  // Returns false if it was interrupted.
  bool train() {
    try {
      trainer->train({.resume_from_checkpoint = etude::if_any});
      return true;
    } catch (const etude::Interrupted&) {
      return false;
    }
  }
};

// A program's signal handler, which returns.
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

  // Each group raises SubstepEnd 3 times: for all its micro-batches but the last.
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
  CHECK(toy::weights(*run.trainer) != text);  // the running means have changed since

  Run again(folder);
  REQUIRE(again.train());
  CHECK(toy::outcome(*again.trainer) == toy::outcome(*unbroken.trainer));
}

TEST_CASE("a training that is interrupted while it resumes loses nothing") {
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

TEST_CASE("a training that is interrupted during an early stop ends as if it weren't interrupted") {
  const Handler handler;
  const toy::Folder other;
  Run unbroken(other, {}, false, 2);
  REQUIRE(unbroken.train());
  REQUIRE(unbroken.trainer->state().global_step == 3);  // of 6 in the epoch
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
      again.train();  // not every event is raised again
      Run last(folder, {}, false, 2);
      REQUIRE(last.train());
      CHECK(toy::outcome(*last.trainer) == expected);
    }
}

// Points on a line. From `stuck_from` on, `get` is stuck forever; at `fails`, it throws.
struct StuckPoints {
  std::int64_t stuck_from = 0, fails = -1;
  std::shared_ptr<std::atomic<int>> stuck = std::make_shared<std::atomic<int>>(0);

  std::int64_t size() const { return 40; }
  etude::Example get(std::int64_t i) {
    if (i == fails) {
      while (*stuck == 0) ::usleep(1000);
      throw std::runtime_error("example");
    }
    if (i >= stuck_from) {
      ++*stuck;
      for (;;) ::pause();
    }
    const auto x = torch::full({1}, static_cast<double>(i) / 40);
    return {x, 2 * x + 1};
  }
};

// Acts at the second step, once a worker is stuck.
struct Doing {
  std::function<void()> at_second_step = {};
  std::shared_ptr<std::atomic<int>> stuck = nullptr;

  void on(const etude::StepEnd& e) {
    if (e.state.global_step != 2 || !at_second_step) return;
    while (*stuck == 0) ::usleep(1000);
    at_second_step();
  }
};

// Options of a training of 20 steps with three workers, one of which is stuck.
etude::TrainerOptions stuck_options(const std::string& folder, const StuckPoints& points,
                                    bool in_evaluation = false) {
  auto args = toy::arguments();
  toy::save_to(folder, args, 100);
  args.per_device_train_batch_size = args.per_device_eval_batch_size = 2;
  args.dataloader_num_workers = 3;
  auto options = toy::options(args, 40, 40);
  options.file_system = std::make_shared<toy::QuickFiles>();
  options.train_sampler = std::make_shared<torch::data::samplers::SequentialSampler>(40);
  if (!in_evaluation) {
    options.train_dataset = points;
    return options;
  }
  options.args.eval_strategy = etude::IntervalStrategy::steps;
  options.args.eval_steps = 3;
  options.eval_dataset = points;
  return options;
}

using StuckTrainer = etude::Trainer<toy::Quiet, Doing>;

// Trains until a signal comes, once a worker is stuck; the program's signal handler returns.
void train_until_signal(const etude::TrainerOptions& options, const StuckPoints& points, bool waits) {
  std::function<void()> act;
  if (!waits) act = [] { ::raise(SIGTERM); };
  StuckTrainer trainer(options, toy::Quiet{}, Doing{act, points.stuck});
  std::thread sending;
  if (waits)
    sending = std::thread([&] {
      while (*points.stuck == 0) ::usleep(1000);
      ::usleep(100'000);  // until the training waits, too
      ::kill(::getpid(), SIGTERM);
    });
  try {
    trainer.train();
  } catch (...) {
    if (waits) sending.join();
    throw;
  }
}

TEST_CASE(
    "a child process that a callback creates ends with its first signal, and its parent keeps training") {
  struct Forking {
    std::string end = {};
    void on(const etude::StepEnd& e) {
      if (e.state.global_step != 1) return;
      const auto child = ::fork();
      while (child == 0) ::pause();
      ::kill(child, SIGTERM);
      end = toy::end_of(child);
    }
  };
  for (const bool has_handler : {false, true}) {
    CAPTURE(has_handler);
    void (*before)(int) = ::signal(SIGTERM, has_handler ? [](int) { ::_exit(5); } : SIG_DFL);
    etude::Trainer<Forking> trainer(toy::options(toy::arguments(), 2));
    CHECK(trainer.train().global_step == 2);
    ::signal(SIGTERM, before);
    CHECK(trainer.callback<Forking>().end == std::string(has_handler ? "exit 5" : "signal 15"));
  }
}

TEST_CASE("trainings in two threads both write their checkpoints before a signal ends the process" *
          doctest::skip(!toy::child_can_start_threads)) {
  struct Slow {
    std::chrono::milliseconds step;
    std::atomic<int>* begun;
    void on(const etude::StepEnd& e) const {
      if (e.state.global_step == 1 && ++*begun == 2) ::kill(::getpid(), SIGTERM);
      std::this_thread::sleep_for(step);
    }
  };
  const toy::Folder folder;
  CHECK(toy::end_of_child([&] {
          ::signal(SIGTERM, SIG_DFL);
          std::atomic<int> begun = 0;
          const auto train = [&](const std::string& name, std::chrono::milliseconds step) {
            auto args = toy::arguments();
            args.num_train_epochs = 1000;
            toy::save_to(folder / name, args, 1000000);
            etude::Trainer(toy::options(args, 2), Slow{step, &begun}).train();
          };
          std::thread quick([&] { train("quick", std::chrono::milliseconds(1)); });
          train("slow", std::chrono::milliseconds(500));
          quick.join();
          return 0;
        }) == "signal 15");
  for (const auto* name : {"quick", "slow"}) {
    const auto checkpoint = etude::get_last_checkpoint(folder / name);
    REQUIRE(checkpoint);
    etude::FolderReader reader(*checkpoint);
    CHECK_NOTHROW(reader.verify());
    CHECK(reader.manifest()->reason == "interrupted");
  }
}

TEST_CASE("a signal while a worker is stuck: a checkpoint is written, and the process ends") {
  struct Case {
    bool in_evaluation, waits;
    int step;
  };
  for (const Case& when : {Case{false, true, 5}, Case{false, false, 2}, Case{true, true, 3}})
    for (const bool has_handler : {false, true}) {
      CAPTURE(when.step);
      CAPTURE(has_handler);
      const toy::Folder folder;
      const StuckPoints points{.stuck_from = 10};
      const auto options = stuck_options(folder, points, when.in_evaluation);
      const auto end = toy::end_of_child([&]() -> int {
        ::signal(SIGTERM, has_handler ? [](int) {} : SIG_DFL);
        try {
          train_until_signal(options, points, when.waits);
        } catch (const etude::Interrupted&) {
          std::exit(3);
        }
        return 4;
      });
      CHECK(end == std::string(has_handler ? "exit 3" : "signal 15"));
      etude::FolderReader checkpoint(folder / fmt::format("checkpoint-{}", when.step));
      CHECK_NOTHROW(checkpoint.verify());
      CHECK(checkpoint.manifest()->reason == "interrupted");

      auto healthy = toy::options(options.args, 40, 40);
      StuckTrainer again(healthy);
      CHECK(again.train({.resume_from_checkpoint = true}).global_step == 20);
    }
}

TEST_CASE("train() throws Interrupted at once when the checkpoint is written, though a worker is stuck") {
  const toy::Folder folder;
  const StuckPoints points{.stuck_from = 10};
  auto options = stuck_options(folder, points);
  options.push = [&](const std::filesystem::path&) { toy::write_text(folder / "written", ""); };
  CHECK(toy::end_of_child([&] {
          ::signal(SIGTERM, [](int) {});
          try {
            train_until_signal(options, points, true);
          } catch (const etude::Interrupted&) {
            const auto written = std::filesystem::last_write_time(folder / "written");
            return std::filesystem::file_time_type::clock::now() - written < std::chrono::seconds(5) ? 3 : 4;
          }
          return 5;
        }) == "exit 3");
}

TEST_CASE("train() ends though a worker is stuck: by an exception, a stop, or the error of another worker") {
  const auto end_of_training = [](const StuckPoints& points, std::function<void()> at_second_step) {
    const toy::Folder folder;
    return toy::end_of_child([&] {
      StuckTrainer trainer(stuck_options(folder, points), toy::Quiet{}, Doing{at_second_step, points.stuck});
      try {
        return trainer.train().stop_reason == "enough" ? 3 : 4;
      } catch (const std::runtime_error& error) {
        return error.what() == std::string("callback") ? 5 : error.what() == std::string("example") ? 6 : 7;
      }
    });
  };
  CHECK(end_of_training({.stuck_from = 10}, [] { throw etude::StopTraining("enough"); }) == "exit 3");
  CHECK(end_of_training({.stuck_from = 10}, [] { throw std::runtime_error("callback"); }) == "exit 5");
  CHECK(end_of_training({.stuck_from = 10, .fails = 9}, {}) == "exit 6");
}

// `get` is stuck once all examples have been fetched.
struct StuckAfterOnePass {
  std::shared_ptr<std::atomic<int>> fetched = std::make_shared<std::atomic<int>>(0);

  std::int64_t size() const { return 8; }
  etude::Example get(std::int64_t) {
    if (++*fetched > 8)
      for (;;) ::pause();
    return {torch::rand({3}), torch::ones({1})};
  }
};

TEST_CASE("a signal ends a training whose averaged model waits for a stuck worker to renew its statistics") {
  const StuckAfterOnePass points;
  auto args = toy::arguments();
  args.per_device_train_batch_size = 2;
  args.dataloader_num_workers = 1;
  auto options = toy::options(args);
  options.model = std::make_shared<toy::DroppingNet>();
  options.train_dataset = points;
  CHECK(toy::end_of_child([&]() -> int {
          ::signal(SIGTERM, SIG_DFL);
          std::thread([fetched = points.fetched] {
            while (*fetched <= 8) ::usleep(1000);
            ::kill(::getpid(), SIGTERM);
          }).detach();
          etude::Trainer<toy::Quiet, etude::StochasticWeightAveragingCallback>(options).train();
          return 4;
        }) == "signal 15");
}

}  // namespace checkpoint_interruptions_test
