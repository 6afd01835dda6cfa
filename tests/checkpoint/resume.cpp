#include "etude/checkpoint/resume.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>

#include <functional>
#include <map>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>

#include "common/folder.hpp"
#include "common/full_run.hpp"
#include "etude/callbacks/early_stopping.hpp"

namespace checkpoint_resume_test {

// Requests an evaluation and draws random numbers in events that a resumed run raises again.
struct Asking {
  void on(const etude::EpochBegin& e) {
    e.control.should_evaluate = true;
    torch::rand({3});
  }
};

// A callback that acts at the n-th event of any type.
struct At {
  std::int64_t n = -1;
  std::function<void()> act = {};
  std::int64_t seen = 0;
  template <std::derived_from<etude::Context> Event>
  void on(const Event&) {
    if (++seen == n) act();
  }
};

struct Run {
  std::string folder;
  int workers = 0;
  std::function<void(etude::TrainingArguments&)> change = {};
  std::mt19937 engine = {};

  etude::TrainerOptions options() {
    auto options = toy::full_options(folder, engine);
    options.args.dataloader_num_workers = workers;
    if (change) change(options.args);
    return options;
  }
};

struct Outcome {
  std::string tensors, all;
};

template <class Trainer>
Outcome outcome_of(Trainer& trainer) {
  return {toy::tensors(trainer), toy::outcome(trainer)};
}

auto trainer_of(Run& run, At at = {}) {
  using Trainer = etude::Trainer<toy::Quiet, toy::Diary, Asking, etude::EarlyStoppingCallback, At>;
  return std::make_unique<Trainer>(run.options(), toy::Diary{.engine = &run.engine},
                                   etude::EarlyStoppingCallback{.early_stopping_patience = 2}, at);
}

Outcome unbroken(int workers, const std::function<void(etude::TrainingArguments&)>& change = {}) {
  const toy::Folder folder;
  Run run{.folder = folder, .workers = workers, .change = change};
  const auto trainer = trainer_of(run);
  trainer->train();
  return outcome_of(*trainer);
}

TEST_CASE("a run that is resumed from any of its steps ends where the uninterrupted one ends, to the bit") {
  for (const int workers : {0, 2}) {
    const toy::Folder folder;
    Run run{.folder = folder, .workers = workers};
    const auto whole = trainer_of(run);
    CHECK(whole->train().global_step == 12);
    const auto expected = outcome_of(*whole);
    for (int step = 1; step <= 12; ++step) {
      CAPTURE(step);
      const toy::Folder other;
      Run again{.folder = other, .workers = workers};
      const auto resumed = trainer_of(again);
      again.engine.seed(99);
      torch::manual_seed(static_cast<std::uint64_t>(step));
      resumed->train({.resume_from_checkpoint = folder / fmt::format("checkpoint-{}", step)});
      CHECK(outcome_of(*resumed).all == expected.all);
    }
  }
}

/// Noisy waves with their index as label.
struct NoisyWaves {
  std::int64_t n = 46;
  std::int64_t size() const { return n; }
  std::pair<torch::Tensor, torch::Tensor> get(std::int64_t i, torch::Generator& generator) {
    return {torch::randn({3}, generator), torch::full({1}, static_cast<float>(i) / 46)};
  }
};

TEST_CASE("random numbers in get are the same after a resume, with other workers and batches") {
  const auto train = [](Run& run, const etude::TrainOptions& how) {
    auto options = run.options();
    options.train_dataset = NoisyWaves();
    options.eval_dataset = NoisyWaves{9};
    struct Seen {
      std::map<std::pair<std::int64_t, double>, double> inputs;  // by epoch and label
      void on(const etude::ForwardBegin& e) {
        for (std::int64_t i = 0; i < e.batch.size; ++i)
          inputs[{static_cast<std::int64_t>(e.state.epoch), e.batch.labels[0][i].item<double>()}] =
              e.batch.inputs[0][i][0].item<double>();
      }
    };
    etude::Trainer<toy::Quiet, Seen> trainer(options);
    trainer.train(how);
    return std::pair(trainer.callback<Seen>().inputs, toy::tensors(trainer));
  };
  const toy::Folder folder, other, third;
  Run run{.folder = folder, .workers = 2};
  const auto [inputs, tensors] = train(run, {});
  CHECK(inputs.size() == 2 * 46);
  for (const int workers : {0, 3}) {
    Run again{.folder = other, .workers = workers};
    CHECK(train(again, {.resume_from_checkpoint = folder / "checkpoint-2"}).second == tensors);
  }
  Run larger{.folder = third, .change = [](auto& args) { args.per_device_train_batch_size = 6; }};
  const auto rest = train(larger, {.resume_from_checkpoint = folder / "checkpoint-2"}).first;
  CHECK(rest.size() == 2 * 46 - 2 * 4 * 2);
  for (const auto& [place, value] : rest) CHECK(value == inputs.at(place));
}

// Trains, and resumes until nothing interrupts the training any more; `act` runs at the n-th event of the
// first attempt.
template <class Act>
Outcome with_interruptions(std::int64_t n, Act act,
                           const std::function<void(etude::TrainingArguments&)>& change) {
  const toy::Folder folder;
  for (int attempt = 0;; ++attempt) {
    REQUIRE(attempt < 40);
    Run run{.folder = folder, .change = change};
    const auto trainer = trainer_of(run, At{attempt == 0 ? n : -1, act});
    try {
      trainer->train({.resume_from_checkpoint = etude::if_any});
      return outcome_of(*trainer);
    } catch (const etude::Interrupted&) {
    } catch (const std::runtime_error& error) {
      REQUIRE(std::string(error.what()) == "a fault");
    }
  }
}

std::int64_t events_in(const std::function<void(etude::TrainingArguments&)>& change) {
  const toy::Folder folder;
  Run run{.folder = folder, .change = change};
  const auto trainer = trainer_of(run);
  trainer->train();
  return trainer->callback<At>().seen;
}

const auto by_steps = [](etude::TrainingArguments& args) { args.save_steps = 3; };
const auto by_epochs = [](etude::TrainingArguments& args) {
  args.save_strategy = etude::SaveStrategy::epoch;
  args.eval_strategy = args.logging_strategy = etude::IntervalStrategy::epoch;
  args.eval_on_start = true;
};

TEST_CASE("a signal at any event saves a checkpoint from which the run ends like the uninterrupted one") {
  // Stands in for a program's signal handler, which returns.
  const auto before = ::signal(SIGTERM, [](int) {});
  for (const auto& change : {std::function<void(etude::TrainingArguments&)>(by_steps),
                             std::function<void(etude::TrainingArguments&)>(by_epochs)}) {
    const auto expected = unbroken(0, change);
    for (std::int64_t n = 1, count = events_in(change); n < count; n += 9) {
      CAPTURE(n);
      CHECK(with_interruptions(
                n, [] { ::raise(SIGTERM); }, change)
                .all == expected.all);
    }
  }
  ::signal(SIGTERM, before);
}

TEST_CASE("an exception at any event, with save_on_exception, loses no finished work") {
  const auto change = [](etude::TrainingArguments& args) {
    by_steps(args);
    args.save_on_exception = true;
  };
  const auto expected = unbroken(0, change);
  for (std::int64_t n = 8, count = events_in(change) - 3; n < count; n += 9) {
    CAPTURE(n);
    CHECK(with_interruptions(
              n, [] { throw std::runtime_error("a fault"); }, change)
              .tensors == expected.tensors);
  }
}

}  // namespace checkpoint_resume_test
