#include "etude/training_arguments.hpp"

#include <doctest/doctest.h>

#include "common/fault_of.hpp"
#include "common/toy.hpp"
#include "etude/base/error.hpp"

namespace arguments_report_to_test {

// These have the names of trackers' callbacks.
struct MLflowCallback {
  std::int64_t* logs = nullptr;
  void on(const etude::Log&) { ++*logs; }
};

etude::TrainerOptions options_with(std::vector<std::string> report_to) {
  auto args = toy::arguments();
  args.logging_strategy = etude::IntervalStrategy::epoch;
  args.report_to = std::move(report_to);
  return toy::options(args);
}

TEST_CASE("a requested tracker that is missing is an error before training begins") {
  etude::Trainer trainer(options_with({"mlflow", "wandb"}));
  CHECK(toy::fault_of<etude::ArgumentError>([&] { trainer.train(); }) ==
        "report_to has 'wandb', but the trainer has no WandbCallback: must have one in its list, or "
        "RuntimeCallbacks and a call of etude::add_trackers(trainer), of etude/integrations/report_to.hpp, "
        "in a "
        "program built with ETUDE_WANDB");
  CHECK(trainer.state().global_step == 0);
}

TEST_CASE("it is also an error before an evaluation or a prediction outside of a training") {
  auto options = options_with({"mlflow"});
  const auto dataset = options.train_dataset;
  etude::Trainer trainer(std::move(options));
  CHECK_THROWS_AS(trainer.evaluate({.eval_dataset = dataset}), etude::ArgumentError);
  CHECK_THROWS_AS(trainer.predict(dataset), etude::ArgumentError);
}

TEST_CASE("a tracker may be in the list, or be added at run time") {
  std::int64_t logs = 0;
  etude::Trainer listed(options_with({"mlflow"}), MLflowCallback{&logs});
  listed.train();
  CHECK(logs > 0);
  etude::Trainer<etude::RuntimeCallbacks> later(options_with({"mlflow"}));
  later.add_callback(MLflowCallback{&logs});
  CHECK_NOTHROW(later.train());
}

TEST_CASE("`all` is valid without any trackers") {
  CHECK_NOTHROW(etude::Trainer(options_with({"all"})).train());
  CHECK_NOTHROW(etude::Trainer(options_with({"none"})).train());
}

}  // namespace arguments_report_to_test
