#include "etude/callbacks/limit_eval_steps.hpp"

#include <doctest/doctest.h>

#include "common/toy.hpp"
#include "etude/base/error.hpp"
#include "etude/callbacks/step_based_evaluation.hpp"

namespace callbacks_limit_eval_steps_test {

using Callback = etude::LimitEvalStepsCallback;

/// Counts the batches of each evaluation.
struct Count {
  std::vector<int> batches = {};
  void on(const etude::EvaluateBegin&) { batches.push_back(0); }
  void on(const etude::PredictionStep&) {
    if (!batches.empty()) ++batches.back();
  }
};

etude::TrainingArguments arguments() {
  auto args = toy::arguments();
  args.num_train_epochs = 2;
  args.eval_strategy = etude::IntervalStrategy::epoch;
  args.eval_on_start = true;
  return args;
}

TEST_CASE("evaluations in the middle of an epoch end early, others don't") {
  etude::Trainer<Callback, etude::StepBasedEvaluationCallback, Count> trainer(
      toy::options(arguments(), 3, 5), Callback{.num_eval_steps = 2},
      etude::StepBasedEvaluationCallback{.eval_every_n_steps = 2});
  trainer.train();
  // Evaluations take place at the start, at step 2, at the end of the first epoch, at steps 4 and 6, and at
  // the end of the second.
  CHECK(trainer.callback<Count>().batches == std::vector{5, 2, 5, 2, 2, 5});
  trainer.evaluate();
  CHECK(trainer.callback<Count>().batches.back() == 5);
}

TEST_CASE("all evaluations may be limited, and a smaller limit elsewhere still applies") {
  struct Other {
    void on(etude::DataLoaderCreated& e) { e.max_batches = 3; }
  };
  for (const std::int64_t limit : {2, 4}) {
    etude::Trainer<Other, Callback, Count> trainer(
        toy::options(arguments(), 3, 5), Callback{.num_eval_steps = limit, .limit_intermediate_only = false});
    trainer.train();
    trainer.evaluate();
    CHECK(trainer.callback<Count>().batches == std::vector<int>(4, limit == 2 ? 2 : 3));
    CHECK(trainer.state().global_step == 6);
  }
}

TEST_CASE("a prediction isn't limited") {
  etude::Trainer<Callback> trainer(toy::options(arguments()),
                                   Callback{.num_eval_steps = 1, .limit_intermediate_only = false});
  const auto [x, y] = toy::points(4);
  CHECK(trainer.predict(x).predictions.single().size(0) == 4);
}

TEST_CASE("a number below 1 is refused") {
  CHECK_THROWS_WITH_AS(etude::Trainer<Callback>(toy::options(arguments())),
                       "num_eval_steps is 0: must be at least 1", etude::ArgumentError);
}

}  // namespace callbacks_limit_eval_steps_test
