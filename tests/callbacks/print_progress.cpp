#include "etude/callbacks/print_progress.hpp"

#include <doctest/doctest.h>

#include "common/printed.hpp"
#include "common/toy.hpp"

namespace callbacks_print_progress_test {

using Callback = etude::PrintProgressCallback;

TEST_CASE("it prints the same text as pytorch-accelerated, at the same points") {
  auto args = toy::arguments();
  args.num_train_epochs = 2;
  args.eval_strategy = etude::IntervalStrategy::epoch;
  etude::Trainer<etude::NoDefaultCallbacks, etude::DefaultFlowCallback, Callback> trainer(toy::options(args));
  for (int i = 0; i < 2; ++i)  // The second training restarts its epoch count.
    CHECK(toy::printed([&] { trainer.train(); }) ==
          "\nStarting training run\n"
          "\nStarting epoch 1\n"
          "\nStarting eval epoch\n"
          "\nStarting epoch 2\n"
          "\nStarting eval epoch\n"
          "Finishing training run\n");
  CHECK(toy::printed([&] { trainer.evaluate(); }) ==
        "\nStarting evaluation run\n\nStarting eval epoch\nFinishing evaluation run\n");
}

TEST_CASE("the end is printed after an exception too") {
  struct Fails {
    void on(const etude::StepEnd&) { throw std::runtime_error("no"); }
  };
  etude::Trainer<etude::NoDefaultCallbacks, Callback, Fails> trainer(toy::options(toy::arguments()));
  CHECK(toy::printed([&] { CHECK_THROWS_AS(trainer.train(), std::runtime_error); }) ==
        "\nStarting training run\n\nStarting epoch 1\nFinishing training run\n");
}

TEST_CASE("an epoch that is resumed keeps its number") {
  const toy::Folder folder;
  auto args = toy::arguments();
  args.num_train_epochs = 3;
  toy::save_to(folder, args);
  etude::Trainer<Callback> first(toy::options(args));
  toy::printed([&] { first.train(); });
  const auto resumed_from = [&](int step) {
    etude::Trainer<Callback> trainer(toy::options(args));
    return toy::printed(
        [&] { trainer.train({.resume_from_checkpoint = folder / fmt::format("checkpoint-{}", step)}); });
  };
  const auto in_the_second = resumed_from(3);
  CHECK(in_the_second.find("epoch 1") == std::string::npos);
  CHECK(in_the_second.find("epoch 2") != std::string::npos);
  CHECK(in_the_second.find("epoch 3") != std::string::npos);
  CHECK(in_the_second.find("epoch 4") == std::string::npos);
}

TEST_CASE("an epoch that a stop cuts short doesn't count as done") {
  struct Stops {
    void on(const etude::StepEnd& e) {
      if (e.state.global_step == 3) e.control.request_stop("enough");
    }
  };
  const toy::Folder folder;
  auto args = toy::arguments();
  args.num_train_epochs = 2;
  toy::save_to(folder, args, 100);
  etude::Trainer<Callback, Stops> first(toy::options(args));
  toy::printed([&] { first.train(); });
  CHECK(first.callback<Callback>().state.epochs.ended == 1);
  etude::Trainer<Callback> rest(toy::options(args));
  const auto text = toy::printed([&] { rest.train({.resume_from_checkpoint = true}); });
  CHECK(text.find("epoch 2") != std::string::npos);
  CHECK(text.find("epoch 3") == std::string::npos);
  CHECK(rest.callback<Callback>().state.epochs.ended == 2);
}

TEST_CASE("it is silent if another process of the machine prints") {
  struct Second {
    void on(const etude::Context& e) {
      const_cast<etude::TrainerState&>(e.state).is_local_process_zero = false;
    }
  };
  etude::Trainer<etude::NoDefaultCallbacks, Second, Callback> trainer(toy::options(toy::arguments()));
  CHECK(toy::printed([&] { trainer.train(); }).empty());
}

}  // namespace callbacks_print_progress_test
