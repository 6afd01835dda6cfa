#include "etude/callbacks/learning_rate_monitor.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "common/logged.hpp"
#include "common/toy.hpp"
#include "etude/optim/rules/sgd.hpp"

namespace callbacks_learning_rate_monitor_test {

using Values = std::vector<double>;

/// Four steps in two epochs at rates of .1, .075, .05 and .025.
etude::TrainingArguments arguments() {
  auto args = toy::arguments();
  args.num_train_epochs = 2;
  args.lr_scheduler_type = etude::SchedulerType::linear;
  args.logging_strategy = etude::IntervalStrategy::steps;
  args.logging_steps = 1;
  return args;
}

void check_near(const Values& found, const Values& expected) {
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) CHECK(found[i] == doctest::Approx(expected[i]));
}

TEST_CASE("each log has the rates of its step, one for each group") {
  etude::Trainer<etude::LearningRateMonitor> trainer(toy::options(arguments()));
  trainer.train();
  check_near(toy::logged(trainer.state(), "lr-AdamW/pg1"), {.1, .075, .05, .025});
  check_near(toy::logged(trainer.state(), "lr-AdamW/pg2"), {.1, .075, .05, .025});
  CHECK(toy::logged(trainer.state(), "lr-AdamW/pg1") == toy::logged(trainer.state(), "learning_rate"));
  CHECK_FALSE(toy::logged_any(trainer.state(), "lr-AdamW/pg1-"));
}

TEST_CASE("a log over several steps has the rate of the last, not their mean") {
  auto args = arguments();
  args.logging_steps = 2;
  etude::Trainer<etude::LearningRateMonitor> trainer(toy::options(args));
  trainer.train();
  check_near(toy::logged(trainer.state(), "lr-AdamW/pg1"), {.075, .025});
  args.logging_strategy = etude::IntervalStrategy::epoch;
  etude::Trainer<etude::LearningRateMonitor> by_epoch(toy::options(args));
  by_epoch.train();
  check_near(toy::logged(by_epoch.state(), "lr-AdamW/pg1"), {.075, .025});
}

TEST_CASE("with epochs as the interval, the first log of each has its initial rates") {
  etude::Trainer<etude::LearningRateMonitor> trainer(
      toy::options(arguments()),
      etude::LearningRateMonitor{.logging_interval = etude::LearningRateInterval::epoch});
  trainer.train();
  check_near(toy::logged(trainer.state(), "lr-AdamW/pg1"), {.1, .05});
  CHECK(toy::logged_at(trainer.state(), "lr-AdamW/pg1") == std::vector{1, 3});
}

TEST_CASE("momentum and weight decay of each group are logged, if configured") {
  auto args = arguments();
  args.max_steps = 1;
  args.weight_decay = .25;
  args.adam_beta1 = .75;
  const etude::LearningRateMonitor all{.log_momentum = true, .log_weight_decay = true};
  etude::Trainer<etude::LearningRateMonitor> adam(toy::options(args), all);
  adam.train();
  CHECK(toy::logged(adam.state(), "lr-AdamW/pg1-momentum") == Values{.75});
  CHECK(toy::logged(adam.state(), "lr-AdamW/pg1-weight_decay") == Values{.25});
  CHECK(toy::logged(adam.state(), "lr-AdamW/pg2-weight_decay") == Values{0});  // the bias

  auto options = toy::options(args);
  const auto line = toy::Line();
  options.model = line;
  options.optimizer =
      std::make_shared<torch::optim::SGD>(line->parameters(), torch::optim::SGDOptions(.5).momentum(.625));
  etude::Trainer<etude::LearningRateMonitor> own(options, all);
  own.train();
  CHECK(toy::logged(own.state(), "lr-SGD") == Values{.5});  // a single group has no number
  CHECK(toy::logged(own.state(), "lr-SGD-momentum") == Values{.625});

  options.model = toy::Line();
  options.optimizer = nullptr;
  options.args.optim = etude::OptimizerNames::adagrad;
  etude::Trainer<etude::LearningRateMonitor> adagrad(options, all);
  adagrad.train();
  CHECK(toy::logged(adagrad.state(), "lr-Adagrad/pg1").size() == 1);
  CHECK_FALSE(toy::logged_any(adagrad.state(), "lr-Adagrad/pg1-momentum"));
}

TEST_CASE("a resumed run logs the same as an uninterrupted run") {
  const toy::Folder folder;
  auto args = arguments();
  toy::save_to(folder, args);
  for (const auto strategy : {etude::IntervalStrategy::steps, etude::IntervalStrategy::epoch}) {
    args.logging_strategy = strategy;
    etude::Trainer<etude::LearningRateMonitor> whole(toy::options(args));
    whole.train();
    for (const int step : {1, 2, 3}) {
      etude::Trainer<etude::LearningRateMonitor> resumed(toy::options(args));
      resumed.train({.resume_from_checkpoint = folder / ("checkpoint-" + std::to_string(step))});
      CHECK(toy::logged(resumed.state(), "lr-AdamW/pg1") == toy::logged(whole.state(), "lr-AdamW/pg1"));
      CHECK(toy::logged_at(resumed.state(), "lr-AdamW/pg1") == toy::logged_at(whole.state(), "lr-AdamW/pg1"));
    }
  }
}

}  // namespace callbacks_learning_rate_monitor_test
