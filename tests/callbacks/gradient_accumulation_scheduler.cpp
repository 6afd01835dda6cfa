#include "etude/callbacks/gradient_accumulation_scheduler.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "common/fault_of.hpp"
#include "common/toy.hpp"
#include "etude/base/error.hpp"

namespace callbacks_gradient_accumulation_scheduler_test {

using etude::GradientAccumulationScheduler;

struct Groups {
  std::vector<std::int64_t> sizes = {};
  std::int64_t size = 0;
  void on(const etude::BackwardEnd&) { ++size; }
  void on(const etude::StepEnd&) { sizes.push_back(std::exchange(size, 0)); }
};

using Saved = etude::Trainer<GradientAccumulationScheduler, Groups>;
using Scheduled = etude::Trainer<etude::NoDefaultCallbacks, GradientAccumulationScheduler, Groups>;

TEST_CASE("an update has as many micro-batches as the schedule says for its epoch, as planned") {
  auto args = toy::arguments();
  args.num_train_epochs = 4;
  Scheduled trainer(toy::options(args, 5), GradientAccumulationScheduler{{{1, 2}, {3, 4}}}, Groups{});
  trainer.train();
  CHECK(trainer.callback<Groups>().sizes == std::vector<std::int64_t>{1, 1, 1, 1, 1, 2, 2, 1, 2, 2, 1, 4, 1});
  CHECK(trainer.state().max_steps == 13);
  CHECK(trainer.state().epoch == 4);
}

TEST_CASE("an endless number of epochs is refused before the first step") {
  auto args = toy::arguments();
  args.num_train_epochs = 1e18;
  Scheduled trainer(toy::options(args, 5), GradientAccumulationScheduler{{{1, 2}}}, Groups{});
  CHECK(toy::contains(toy::fault_of<etude::ArgumentError>([&] { trainer.train(); }),
                      "num_train_epochs is 1e+18 and max_steps is -1: must be at most 1000000 epochs"));
  CHECK(trainer.callback<Groups>().size == 0);
}

TEST_CASE("max_steps and parts of an epoch are counted with the schedule") {
  auto args = toy::arguments();
  args.max_steps = 7;
  Scheduled by_steps(toy::options(args, 5), GradientAccumulationScheduler{{{1, 2}}}, Groups{});
  by_steps.train();
  CHECK(by_steps.callback<Groups>().sizes == std::vector<std::int64_t>{1, 1, 1, 1, 1, 2, 2});
  CHECK(by_steps.state().num_train_epochs == 2);
  args.max_steps = -1;
  args.num_train_epochs = 1.5;
  Scheduled by_epochs(toy::options(args, 6), GradientAccumulationScheduler{{{1, 3}}}, Groups{});
  by_epochs.train();
  CHECK(by_epochs.state().global_step == 6 + 1);
}

TEST_CASE("a resumed training has the same groups as one that wasn't interrupted") {
  const toy::Folder folder;
  auto args = toy::arguments();
  args.num_train_epochs = 3;
  toy::save_to(folder, args);
  const GradientAccumulationScheduler schedule{{{1, 2}, {2, 3}}};
  Saved whole(toy::options(args, 4), schedule, Groups{});
  whole.train();
  CHECK(whole.callback<Groups>().sizes == std::vector<std::int64_t>{1, 1, 1, 1, 2, 2, 3, 1});
  const auto weight = whole.model().as<toy::LineImpl>().weight.item<double>();
  for (int step = 1; step < 8; ++step) {
    CAPTURE(step);
    Saved resumed(toy::options(args, 4), schedule, Groups{});
    resumed.train({.resume_from_checkpoint = folder / ("checkpoint-" + std::to_string(step))});
    const auto& all = whole.callback<Groups>().sizes;
    CHECK(resumed.callback<Groups>().sizes == std::vector<std::int64_t>(all.begin() + step, all.end()));
    CHECK(resumed.model().as<toy::LineImpl>().weight.item<double>() == weight);
  }
}

TEST_CASE("an invalid schedule is refused before training, by name") {
  for (const auto& bad :
       {GradientAccumulationScheduler{{{-1, 2}}}, GradientAccumulationScheduler{{{0, 0}}}}) {
    Scheduled trainer(toy::options(toy::arguments()), bad, Groups{});
    CHECK_THROWS_WITH_AS(trainer.train(), doctest::Contains("scheduling has {"), etude::ArgumentError);
  }
}

}  // namespace callbacks_gradient_accumulation_scheduler_test
