#include "etude/callbacks/epoch_count.hpp"

#include <doctest/doctest.h>

#include "common/printed.hpp"
#include "common/stream.hpp"
#include "common/toy.hpp"
#include "etude/callbacks/print_progress.hpp"
#include "etude/callbacks/run_history.hpp"

namespace callbacks_epoch_count_test {

using Steps = std::vector<std::int64_t>;

struct Epochs {
  ETUDE_STRUCT(Epochs, (etude::EpochCount, count, "of EpochEnd"), (Steps, at, "steps at which one was done"));
  void on(const etude::TrainBegin& e) { count.begin(e); }
  void on(const etude::EpochEnd& e) {
    if (count.end(e)) at.push_back(e.state.global_step);
  }
};

enum class Stop { never, asked, thrown, by_max_steps };

/// Stops after the fourth step.
struct Stops {
  Stop how = Stop::never;
  void on(const etude::StepEnd& e) {
    if (e.state.global_step != 4) return;
    if (how == Stop::asked) e.control.request_stop("enough");
    if (how == Stop::thrown) throw etude::StopTraining("enough");
  }
};

/// Saves at the end of the training, so that the checkpoint to resume from includes the events of the end.
struct Saves {
  void on(const etude::TrainingRunEpochEnd& e) { e.control.should_save = true; }
};

TEST_CASE("an epoch counts once, whether the training is stopped and resumed at its end or in its middle") {
  using Trainer = etude::Trainer<Epochs, etude::RunHistoryCallback, Stops, Saves>;
  for (const bool has_length : {true, false})
    for (const std::int64_t batches : {4, 6})
      for (const auto how : {Stop::never, Stop::asked, Stop::thrown, Stop::by_max_steps}) {
        CAPTURE(has_length);
        CAPTURE(batches);
        CAPTURE(static_cast<int>(how));
        const toy::Folder folder;
        auto args = toy::arguments();
        toy::save_to(folder, args, 100);
        const auto train = [&](std::int64_t max_steps, Stop stop) {
          args.max_steps = max_steps;
          auto options = toy::options(args, batches);
          if (!has_length) options.train_dataset = toy::Stream{batches};
          auto trainer = std::make_unique<Trainer>(options, Stops{stop});
          CHECK(trainer->train({.resume_from_checkpoint = etude::if_any}).global_step ==
                (stop == Stop::never ? max_steps : 4));
          return trainer;
        };
        if (how != Stop::never) {
          const auto stopped = train(how == Stop::by_max_steps ? 4 : 10, how);
          CHECK((stopped->callback<Epochs>().at == (has_length && batches == 4 ? Steps{4} : Steps{})));
        }
        const auto trainer = train(10, Stop::never);
        const auto& epochs = trainer->callback<Epochs>();
        CHECK((epochs.at == (batches == 4 ? Steps{4, 8} : Steps{6})));
        CHECK(epochs.count.ended == std::ssize(epochs.at));
        CHECK(trainer->callback<etude::RunHistoryCallback>().history().current_epoch() ==
              std::ssize(epochs.at) + 1);
      }
}

TEST_CASE("an epoch stays the same while data of unknown length may have more batches") {
  const toy::Folder folder;
  auto args = toy::arguments();
  toy::save_to(folder, args, 100);
  const auto printed = [&](std::int64_t max_steps) {
    args.max_steps = max_steps;
    auto options = toy::options(args);
    options.train_dataset = toy::Stream{4};
    etude::Trainer<etude::NoDefaultCallbacks, etude::DefaultFlowCallback, etude::PrintProgressCallback, Saves>
        trainer(options);
    return toy::printed([&] { trainer.train({.resume_from_checkpoint = etude::if_any}); });
  };
  CHECK(printed(4) == "\nStarting training run\n\nStarting epoch 1\nFinishing training run\n");
  CHECK(printed(6) ==
        "\nStarting training run\n\nStarting epoch 1\n\nStarting epoch 2\nFinishing training run\n");
}

TEST_CASE("an epoch that is skipped counts, and had no steps") {
  struct Skips {
    int begun = 0;
    void on(const etude::EpochBegin& e) {
      if (++begun == 2) e.control.should_epoch_stop = true;
    }
  };
  auto args = toy::arguments();
  args.num_train_epochs = 3;
  etude::Trainer<Epochs, Skips> trainer(toy::options(args, 3));
  trainer.train();
  CHECK(trainer.callback<Epochs>().count.ended == 3);
  CHECK((trainer.callback<Epochs>().at == Steps{3, 6}));
}

TEST_CASE("an epoch that an exception interrupts isn't done") {
  struct Fails {
    void on(const etude::StepEnd& e) {
      if (e.state.global_step == 4) throw std::runtime_error("no");
    }
  };
  auto args = toy::arguments();
  args.num_train_epochs = 3;
  etude::Trainer<Epochs, Fails> trainer(toy::options(args, 3));
  CHECK_THROWS_WITH(trainer.train(), "no");
  CHECK((trainer.callback<Epochs>().at == Steps{3}));
}

TEST_CASE("a count that is added in the middle of a training continues from its epoch") {
  const toy::Folder folder;
  auto args = toy::arguments();
  toy::save_to(folder, args);
  args.num_train_epochs = 3;
  etude::Trainer(toy::options(args, 3)).train();
  etude::Trainer<Epochs> resumed(toy::options(args, 3));
  resumed.train({.resume_from_checkpoint = folder / "checkpoint-5"});
  CHECK((resumed.callback<Epochs>().at == Steps{6, 9}));
  CHECK(resumed.callback<Epochs>().count.ended == 3);
}

}  // namespace callbacks_epoch_count_test
