#include "common/full_run.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include "common/child.hpp"
#include "common/folder.hpp"
#include "common/gate.hpp"
#include "common/printed.hpp"
#include "common/quick_files.hpp"
#include "etude/base/error.hpp"
#include "etude/callbacks/early_stopping.hpp"
#include "etude/checkpoint/store.hpp"
#include "etude/io/background.hpp"
#include "etude/io/folder.hpp"

namespace checkpoint_async_test {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using toy::Gate;

struct Witness {
  std::vector<std::int64_t> saved = {};  // in the order of the events
  std::function<void(std::int64_t)> at_step = {};

  void on(const etude::StepEnd& e) {
    if (at_step) at_step(e.state.global_step);
  }
  void on(const etude::Save& e) { saved.push_back(*etude::checkpoint_step(e.checkpoint)); }
};

using Trainer = etude::Trainer<toy::Quiet, Witness, toy::Diary, etude::EarlyStoppingCallback>;

// A run of six steps, with a checkpoint at every second one.
struct Run {
  std::mt19937 engine;
  std::unique_ptr<Trainer> trainer;

  Run(const std::string& folder, toy::QuickFiles::Hook hook = {}, Witness witness = {}, bool async = true) {
    auto options = toy::full_options(folder, engine);
    options.args.num_train_epochs = 1;
    options.args.save_steps = 2;
    options.args.save_async = async;
    options.file_system = std::make_shared<toy::QuickFiles>(std::move(hook));
    trainer = std::make_unique<Trainer>(options, std::move(witness), toy::Diary{.engine = &engine},
                                        etude::EarlyStoppingCallback{.early_stopping_patience = 5});
  }
  std::vector<std::int64_t> saved() { return trainer->callback<Witness>().saved; }
};

bool is_of(const fs::path& path, int step) {
  return path.string().find(fmt::format("checkpoint-{}", step)) != std::string::npos;
}

TEST_CASE("an asynchronous checkpoint has the state of the step at which it was requested") {
  const toy::Folder folder, other;
  Gate step_is_done;
  bool went_on = false;
  const auto hook = [&](std::string_view operation, const fs::path& path) {
    if (operation == "create" && is_of(path, 4)) went_on = step_is_done.wait();
  };
  Run run(folder, hook, {.at_step = [&](std::int64_t step) {
            if (step == 5) step_is_done.open();
          }});
  run.trainer->train();
  CHECK(went_on);
  CHECK((run.saved() == std::vector<std::int64_t>{2, 4, 6}));

  Run synchronous(other, {}, {}, false);
  synchronous.trainer->train();
  CHECK(toy::outcome(*run.trainer) == toy::outcome(*synchronous.trainer));
  for (const int step : {2, 4, 6})
    for (const auto* name : {"model.safetensors", "optimizer.safetensors", "random_state.safetensors",
                             "optimizer.json", "scheduler.json", "training_progress.json"}) {
      const auto in_checkpoint = [&](const toy::Folder& of) {
        return toy::read_text(of / fmt::format("checkpoint-{}", step) / name);
      };
      CAPTURE(step);
      CAPTURE(name);
      CHECK(in_checkpoint(folder).size() > 10);
      CHECK(in_checkpoint(folder) == in_checkpoint(other));
    }
  CHECK(toy::read_text(folder / "checkpoint-4" / "model.safetensors") !=
        toy::read_text(folder / "checkpoint-6" / "model.safetensors"));
}

TEST_CASE("at most one checkpoint is being written, and none is skipped") {
  const toy::Folder folder;
  std::mutex mutex;
  std::vector<int> order;  // the step of each operation on a checkpoint
  const auto hook = [&](std::string_view operation, const fs::path& path) {
    if (operation == "finish") std::this_thread::sleep_for(5ms);
    const std::lock_guard lock(mutex);
    for (const int step : {2, 4, 6})
      if (is_of(path, step)) order.push_back(step);
  };
  Run run(folder, hook);
  run.trainer->train();
  CHECK(std::ranges::is_sorted(order));
  CHECK((std::set(order.begin(), order.end()) == std::set<int>{2, 4, 6}));
  CHECK((run.saved() == std::vector<std::int64_t>{2, 4, 6}));
}

TEST_CASE("a write error propagates from train() soon, or at its end") {
  for (const int failing : {2, 4, 6}) {
    CAPTURE(failing);
    const toy::Folder folder;
    Gate failed;
    const auto hook = [&](std::string_view operation, const fs::path& path) {
      if (operation != "write" || !is_of(path, failing)) return;
      failed.open();
      throw etude::detail::file_error(path, "can't be written", EIO);
    };
    Run run(folder, hook, {.at_step = [&](std::int64_t step) {
              if (step == failing + 1) CHECK(failed.wait());
            }});
    CHECK_THROWS_WITH_AS(run.trainer->train(),
                         doctest::Contains(fmt::format("checkpoint-{}", failing).c_str()),
                         etude::CheckpointError);
    CHECK(run.trainer->state().global_step <= failing + 2);
    CHECK_FALSE(fs::exists(folder / fmt::format("checkpoint-{}", failing)));
    std::vector<std::int64_t> whole;
    for (int step = 2; step < failing; step += 2) whole.push_back(step);
    CHECK(run.saved() == whole);
  }
}

TEST_CASE("a write error during the next step stops the training there") {
  const toy::Folder folder;
  Gate third_step, failed;
  const auto hook = [&](std::string_view operation, const fs::path& path) {
    if (operation != "write" || !is_of(path, 2)) return;
    third_step.wait();
    failed.open();
    throw etude::detail::file_error(path, "can't be written", EIO);
  };
  Run run(folder, hook, {.at_step = [&](std::int64_t step) {
            if (step != 3) return;
            third_step.open();
            CHECK(failed.wait());
            std::this_thread::sleep_for(500ms);
          }});
  CHECK_THROWS_AS(run.trainer->train(), etude::CheckpointError);
  CHECK(run.trainer->state().global_step == 3);
}

TEST_CASE("train() returns once everything is written") {
  const toy::Folder folder;
  const auto hook = [&](std::string_view operation, const fs::path& path) {
    if (operation == "rename" && is_of(path, 6)) std::this_thread::sleep_for(300ms);
  };
  Run run(folder, hook);
  run.trainer->train();
  for (const int step : {2, 4, 6}) {
    etude::FolderReader reader(folder / fmt::format("checkpoint-{}", step));
    CHECK_NOTHROW(reader.verify());
  }
  CHECK((run.saved() == std::vector<std::int64_t>{2, 4, 6}));
}

TEST_CASE("an exception in the training doesn't damage the checkpoint being written") {
  const toy::Folder folder;
  const auto hook = [&](std::string_view operation, const fs::path& path) {
    if (operation == "finish" && is_of(path, 2)) std::this_thread::sleep_for(30ms);
  };
  Run run(folder, hook, {.at_step = [](std::int64_t step) {
            if (step == 3) throw std::runtime_error("a fault");
          }});
  CHECK_THROWS_WITH(run.trainer->train(), "a fault");
  etude::FolderReader reader(folder / "checkpoint-2");
  CHECK_NOTHROW(reader.verify());
  CHECK((run.saved() == std::vector<std::int64_t>{2}));
}

TEST_CASE("save_checkpoint() outside of a training is on disk once the trainer is destroyed") {
  const toy::Folder folder;
  {
    Run run(folder, [](std::string_view, const fs::path&) { std::this_thread::sleep_for(3ms); });
    run.trainer->save_checkpoint();
  }
  etude::FolderReader reader(folder / "checkpoint-0");
  CHECK_NOTHROW(reader.verify());
}

TEST_CASE("one background job runs at a time, and its error comes from wait or the next start") {
  etude::BackgroundJob job;
  CHECK_FALSE(job.is_running());
  CHECK_FALSE(job.has_ended());
  Gate gate;
  job.start([&] { gate.wait(); });
  CHECK(job.is_running());
  CHECK_FALSE(job.has_ended());
  gate.open();
  job.wait();
  CHECK_FALSE(job.is_running());

  job.start([] { throw std::runtime_error("first"); });
  CHECK_THROWS_WITH(job.start([] {}), "first");
  job.start([] { throw std::runtime_error("second"); });
  while (!job.has_ended()) std::this_thread::yield();
  CHECK_THROWS_WITH(job.wait(), "second");
  CHECK_NOTHROW(job.wait());

  std::atomic<bool> done = false;
  {
    etude::BackgroundJob other;
    other.start([&] {
      std::this_thread::sleep_for(50ms);
      done = true;
    });
  }
  CHECK(done);
}

TEST_CASE("a child created by fork() ignores its parent's job, and can have its own") {
  Gate gate;
  const auto job = std::make_unique<etude::BackgroundJob>();
  job->start([&] { gate.wait(); });
  CHECK(toy::end_of_child([]() -> int { std::exit(3); }) == "exit 3");
  CHECK(toy::end_of_child([&] {
          const_cast<std::unique_ptr<etude::BackgroundJob>&>(job).reset();
          return 4;
        }) == "exit 4");
  CHECK(toy::end_of_child([&] {
          if (job->has_ended()) return 1;
          try {
            job->wait();
            return 2;
          } catch (const etude::Error& error) {
            if (std::string(error.what()).find("forked") == std::string::npos) return 3;
          }
          if (!toy::child_can_start_threads) return 5;
          int done = 0;
          job->start([&] { done = 5; });
          job->wait();
          return done;
        }) == "exit 5");
  gate.open();
  job->wait();
}

TEST_CASE("exit() waits for a job, in any thread, and keeps its status") {
  const toy::Folder folder;
  const auto write_late = [&] {
    std::this_thread::sleep_for(300ms);
    toy::write_text(folder / "late", "done");
  };
  CHECK(toy::end_of_child([&]() -> int {
          auto& job = *new etude::BackgroundJob;
          job.start(write_late);
          std::exit(3);
        }) == "exit 3");
  CHECK(toy::read_text(folder / "late") == "done");
  fs::remove(folder / "late");

  std::string end;
  const auto said = toy::printed(
      [&] {
        end = toy::end_of_child([&] {
          etude::BackgroundJob writing, exiting;
          writing.start(write_late);
          exiting.start([] { std::exit(4); });
          exiting.wait();
          return 1;
        });
      },
      STDERR_FILENO);
  CHECK(end == "exit 4");
  CHECK(said.find("exit() was called in one of Etude's threads") != said.npos);
  CHECK(toy::read_text(folder / "late") == "done");
}

TEST_CASE("a child process created while a checkpoint is written may exit in any way, without harm") {
  struct InChild {};
  for (const bool throws : {false, true}) {
    CAPTURE(throws);
    const toy::Folder folder;
    Gate writing, child_has_ended;
    std::string end;
    bool was_writing = false, is_locked = false;
    const auto hook = [&](std::string_view operation, const fs::path& path) {
      if (operation != "create" || !is_of(path, 2)) return;
      writing.open();
      was_writing = child_has_ended.wait();
    };
    auto run = std::make_unique<Run>(folder, hook, Witness{.at_step = [&](std::int64_t step) {
                                       if (step != 3) return;
                                       // AddressSanitizer's allocator may be locked in the child if that
                                       // thread runs.
                                       writing.wait();
                                       const auto child = ::fork();
                                       if (child == 0 && throws) throw InChild();
                                       if (child == 0) std::exit(7);
                                       end = toy::end_of(child);
                                       is_locked =
                                           !etude::CheckpointStore(fs::path(std::string(folder))).lock();
                                       child_has_ended.open();
                                     }});
    try {
      run->trainer->train();
    } catch (const InChild&) {
      run.reset();
      ::_exit(8);
    }
    CHECK(end == (throws ? "exit 8" : "exit 7"));
    CHECK(was_writing);
    CHECK(is_locked);
    CHECK((run->saved() == std::vector<std::int64_t>{2, 4, 6}));
    for (const int step : {2, 4, 6}) {
      etude::FolderReader reader(folder / fmt::format("checkpoint-{}", step));
      CHECK_NOTHROW(reader.verify());
    }
  }
}

}  // namespace checkpoint_async_test
