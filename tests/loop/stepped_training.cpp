#include "etude/loop/stepped_training.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/fault_of.hpp"
#include "common/folder.hpp"
#include "common/full_run.hpp"
#include "common/printed.hpp"
#include "common/ranks.hpp"
#include "common/toy.hpp"
#include "etude/base/error.hpp"
#include "etude/trainer.hpp"

namespace loop_stepped_training_test {

using etude::IntervalStrategy;

/// Throws when a step begins.
struct Breaks {
  std::int64_t at = -1;
  void on(const etude::StepBegin& e) const {
    if (e.state.global_step == at) throw std::runtime_error("broken");
  }
};

using Full = etude::Trainer<toy::Quiet, toy::Diary, etude::EarlyStoppingCallback, toy::Recorder, Breaks>;

/// One epoch of 6 steps of 4 micro-batches.
struct Run {
  std::mt19937 engine;
  std::unique_ptr<Full> trainer;

  explicit Run(const std::string& folder, std::int64_t breaks_at = -1) {
    auto options = toy::full_options(folder, engine);
    options.train_dataset = toy::waves(48);
    options.args.num_train_epochs = 1;
    options.args.max_steps = 6;
    trainer =
        std::make_unique<Full>(options, toy::Diary{.engine = &engine},
                               etude::EarlyStoppingCallback{.early_stopping_patience = 9}, Breaks{breaks_at});
  }

  /// Gives the batches of the epoch, in its order, from `first` up to `last`.
  void step(std::int64_t first = 0, std::int64_t last = 24) {
    const auto loader = trainer->get_train_dataloader();
    auto batches = loader->begin_epoch(0, first * 2);
    for (auto i = first; i < last; ++i) trainer->step(*batches.next());
  }
  std::string outcome() { return toy::outcome(*trainer); }
};

TEST_CASE(
    "step() with the batches of train() has its events, weights, moments, logs and callbacks to the bit") {
  toy::Folder folder, other;
  Run whole(folder);
  whole.trainer->train();
  Run hosted(other);
  hosted.step();
  const auto output = hosted.trainer->finish();
  CHECK(hosted.outcome() == whole.outcome());
  CHECK(output.global_step == 6);
  CHECK(output.stop_reason == "");
  // Before TrainBegin, train() makes a loader and counts the steps of its epochs.
  const auto from_train_begin = [](const Run& run) {
    const auto& all = run.trainer->callback<toy::Recorder>().heard;
    return std::vector(std::ranges::find(all, "TrainBegin"), all.end());
  };
  CHECK(from_train_begin(whole).size() > 200);
  CHECK(from_train_begin(hosted) == from_train_begin(whole));
}

TEST_CASE("step() resumes a checkpoint of train(), and train() one of step()") {
  toy::Folder folder;
  Run whole(folder);
  whole.trainer->train();
  {
    toy::Folder other;
    Run first(other, 3);
    CHECK_THROWS_AS(first.trainer->train(), std::runtime_error);
    Run second(other);
    second.trainer->begin({.resume_from_checkpoint = true});
    CHECK(second.trainer->state().global_step == 3);
    second.step(12);
    second.trainer->finish();
    CHECK(second.outcome() == whole.outcome());
  }
  toy::Folder other;
  {
    Run first(other);
    first.step(0, 14);  // ends in the middle of a group, and isn't finished
  }
  Run second(other);
  second.trainer->train({.resume_from_checkpoint = true});
  CHECK(second.outcome() == whole.outcome());
}

etude::TrainerOptions line(std::int64_t group, std::int64_t max_steps = -1) {
  auto args = toy::arguments();
  args.optim = etude::OptimizerNames::sgd;
  args.learning_rate = 0.5;
  args.max_grad_norm = 0;
  args.gradient_accumulation_steps = group;
  args.max_steps = max_steps;
  return {.model = toy::Line(), .args = args, .loss = torch::nn::MSELoss()};
}

torch::Tensor number(double value) { return torch::full({1, 1}, value); }

TEST_CASE("every gradient_accumulation_steps calls make an update, and finish() one of those that are left") {
  // The points (0, 1), (1/3, 5/3), (2/3, 7/3), with w = b = 0: gradients are the means of -2 x y and -2 y.
  etude::Trainer<toy::Recorder> trainer(line(2));
  const auto first = trainer.step(number(0), number(1));
  CHECK(!first.loss.defined());
  CHECK(first.global_step == 0);
  const auto second = trainer.step(number(1 / 3.), number(5 / 3.));
  CHECK(second.loss.item<double>() == doctest::Approx((1 + 25 / 9.) / 2));
  CHECK(second.global_step == 1);
  CHECK(!second.should_stop);
  CHECK(!trainer.step({.inputs = number(2 / 3.), .labels = number(7 / 3.)}).loss.defined());
  const auto output = trainer.finish();
  CHECK(output.global_step == 2);
  CHECK(output.stop_reason == "finish() was called");
  double w = 0.5 * (2 * (1 / 3.) * (5 / 3.)) / 2, b = 0.5 * (2 * 1 + 2 * (5 / 3.)) / 2;
  const double residual = (2 / 3.) * w + b - 7 / 3.;
  const auto weights = trainer.model().state_dict();
  CHECK(weights.at(0).second.item<double>() ==
        doctest::Approx(w - 0.5 * 2 * (2 / 3.) * residual).epsilon(1e-5));
  CHECK(weights.at(1).second.item<double>() == doctest::Approx(b - 0.5 * 2 * residual).epsilon(1e-5));
  CHECK(trainer.state().epoch == 0);
  CHECK(trainer.callback<toy::Recorder>().events() ==
        toy::run("InitEnd TrainBegin EpochBegin", toy::a_step_of_two, toy::a_step, "EpochEnd Log TrainEnd"));
}

struct Asks {
  std::int64_t to_stop_at = -1, to_end_epoch_at = -1;
  void on(const etude::StepEnd& e) const {
    if (e.state.global_step == to_stop_at) e.control.request_stop("enough");
    if (e.state.global_step == to_end_epoch_at) e.control.should_epoch_stop = true;
  }
};

TEST_CASE("a callback's stop is returned, and a further step is refused until another training begins") {
  auto options = line(1, 4);
  options.args.save_strategy = etude::SaveStrategy::steps;
  toy::Folder folder;
  options.args.output_dir = folder;
  etude::Trainer<toy::Recorder, Asks> trainer(options, Asks{.to_stop_at = 2, .to_end_epoch_at = 1});
  CHECK(!trainer.step(number(1), number(2)).should_stop);
  const auto stopped = trainer.step(number(1), number(2));
  CHECK(stopped.should_stop);
  CHECK(stopped.stop_reason == "enough");
  CHECK_THROWS_WITH_AS(
      trainer.step(number(1), number(2)),
      "step() was called after the training has stopped at step 2 (enough): call finish(), and "
      "begin() for another",
      etude::Error);
  CHECK(trainer.finish().stop_reason == "enough");
  CHECK(trainer.callback<toy::Recorder>().events() == toy::run("InitEnd TrainBegin EpochBegin", toy::a_step,
                                                               "EpochEnd EpochBegin", toy::a_step,
                                                               "EpochEnd Save Log TrainEnd"));
  trainer.begin({.resume_from_checkpoint = true});
  trainer.callback<Asks>() = {};
  trainer.step(number(1), number(2));
  const auto last = trainer.step(number(1), number(2));
  CHECK(last.should_stop);
  CHECK(last.stop_reason == "");
  CHECK(last.global_step == 4);
  CHECK(trainer.finish().stop_reason == "");
}

TEST_CASE(
    "a batch that is none is refused and the training goes on; an error of the model ends it as train() "
    "does") {
  etude::Trainer<toy::Recorder, Breaks> trainer(line(1), Breaks{.at = 1});
  trainer.step(number(1), number(2));
  CHECK_THROWS_AS(trainer.step(torch::zeros({2, 1}), torch::zeros({3, 1})), etude::DataError);
  CHECK(trainer.callback<toy::Recorder>().count("TrainError") == 0);
  CHECK_THROWS_WITH_AS(trainer.train(),
                       "train() was called before finish(): a training by step() is under way", etude::Error);
  CHECK_THROWS_WITH_AS(trainer.begin(),
                       "begin() was called before finish(): a training by step() is under way", etude::Error);
  CHECK_THROWS_AS(trainer.step(number(1), number(2)), std::runtime_error);
  const auto& heard = trainer.callback<toy::Recorder>();
  CHECK(heard.count("TrainError") == 1);
  CHECK(heard.count("EpochEnd") == 1);
  CHECK(heard.heard.back() == "TrainEnd");
  CHECK_THROWS_WITH_AS(trainer.finish(), "finish() was called, but no training by step() is under way",
                       etude::Error);
  CHECK(trainer.step(number(1), number(2)).global_step == 1);
}

/// Records the end events in a string that outlives the trainer.
struct Ends {
  std::string* heard;
  void on(const etude::EpochEnd&) const { *heard += "EpochEnd "; }
  void on(const etude::TrainEnd&) const { *heard += "TrainEnd "; }
};
struct Own : etude::TrainerBase<Own, Ends> {
  using TrainerBase::TrainerBase;
  std::unique_ptr<std::string> mine = std::make_unique<std::string>();
  void on(const etude::TrainEnd&) { *mine += "ended"; }
  void log(etude::Metrics& logs) {
    *mine += "logged";
    TrainerBase::log(logs);
  }
};

TEST_CASE(
    "the destructor ends a training that isn't finished; a derived part, which is gone, hears nothing") {
  std::string heard;
  {
    etude::Trainer<Ends> trainer(line(2), Ends{&heard});
    trainer.step(number(1), number(2));
  }
  CHECK(heard == "EpochEnd TrainEnd ");
  {
    Own trainer(line(2), Ends{&heard});
    trainer.step(number(1), number(2));
  }
  CHECK(heard == "EpochEnd TrainEnd EpochEnd TrainEnd ");
}

TEST_CASE("without max_steps, what depends on it is refused by name") {
  const auto refused = [](auto change) -> std::string {
    auto options = line(1);
    change(options.args);
    etude::Trainer<> trainer(options);
    return toy::fault_of<etude::ArgumentError>([&] { trainer.begin(); });
  };
  CHECK(refused([](auto&) {}) == "nothing was thrown");
  CHECK(refused([](auto& args) { args.lr_scheduler_type = etude::SchedulerType::cosine; }) ==
        "max_steps is -1: must be positive for a training by step() with the lr_scheduler_type cosine, which "
        "depends on them; constant doesn't");
  const auto one_cycle = [](auto& args) {
    args.lr_scheduler_type = etude::SchedulerType::one_cycle_lr;
    args.optim = etude::OptimizerNames::adam;
  };
  CHECK(toy::contains(refused(one_cycle), "the lr_scheduler_type one_cycle_lr, which depends on them"));
  CHECK(refused([&](auto& args) {
          one_cycle(args);
          args.lr_scheduler_kwargs = {{"total_steps", 10}};
        }) == "nothing was thrown");
  CHECK(refused([](auto& args) {
          args.logging_strategy = IntervalStrategy::steps;
          args.logging_steps = 0.1;
        }) ==
        "max_steps is -1: must be positive for a training by step() if logging_steps is a fraction of them");
  CHECK(refused([](auto& args) { args.auto_find_batch_size = true; }) ==
        "auto_find_batch_size is true: must be false for step(), whose batches the program chooses");
}

TEST_CASE("two processes that step alike train as one with both batches; one that is cancelled stops both") {
  if (toy::launches(2)) return;
  etude::Trainer<etude::DistributedDataParallel> ours(line(2));
  const auto rank = static_cast<double>(ours.args().process_index());
  etude::StepOutput last;
  for (int i = 0; i < 6; ++i) last = ours.step(number(i + rank * 0.5), number(rank + 1));
  CHECK(!last.should_stop);
  if (rank == 1) CHECK(ours.cancel("rank 1 has had enough"));
  ours.step(number(1), number(rank + 1));
  last = ours.step(number(2), number(rank + 1));
  CHECK(last.should_stop);
  CHECK(last.stop_reason == "rank 1 has had enough");
  CHECK(ours.finish().global_step == 4);
  const toy::Alone alone;
  etude::Trainer<> whole(line(2));
  const auto both = [](double first, double second) { return torch::cat({number(first), number(second)}); };
  for (int i = 0; i < 6; ++i) whole.step(both(i, i + 0.5), both(1, 2));
  for (int i = 1; i < 3; ++i) whole.step(both(i, i), both(1, 2));
  whole.finish();
  for (std::size_t i = 0; i < 2; ++i)
    CHECK(ours.model().state_dict().at(i).second.template item<double>() ==
          doctest::Approx(whole.model().state_dict().at(i).second.template item<double>()).epsilon(1e-5));
}

}  // namespace loop_stepped_training_test
