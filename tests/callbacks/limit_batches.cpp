#include "etude/callbacks/limit_batches.hpp"

#include <doctest/doctest.h>

#include "common/toy.hpp"
#include "etude/base/error.hpp"

namespace callbacks_limit_batches_test {

using Callback = etude::LimitBatchesCallback;

struct Count {
  std::int64_t micro_batches = 0, evaluated = 0;
  void on(const etude::ForwardBegin&) { ++micro_batches; }
  void on(const etude::PredictionStep&) { ++evaluated; }
};

struct Run {
  std::int64_t limit, train_batches, accumulation;
  std::int64_t micro_batches, steps;  // of two epochs
};

TEST_CASE("an epoch ends after the limit, as planned, and its last short group makes an update") {
  for (const auto& run : {Run{5, 3, 2, 6, 4}, Run{3, 10, 2, 6, 4}, Run{4, 10, 2, 8, 4}, Run{1, 10, 1, 2, 2},
                          Run{2, 10, 4, 4, 2}}) {
    CAPTURE(run.limit);
    auto args = toy::arguments();
    args.num_train_epochs = 2;
    args.gradient_accumulation_steps = run.accumulation;
    args.eval_strategy = etude::IntervalStrategy::epoch;
    etude::Trainer<Callback, Count> trainer(toy::options(args, run.train_batches, 20),
                                            Callback{.num_batches = run.limit});
    CHECK(trainer.train().global_step == run.steps);
    CHECK(trainer.state().max_steps == run.steps);
    CHECK(trainer.state().epoch == 2);
    CHECK(trainer.callback<Count>().micro_batches == run.micro_batches);
    CHECK(trainer.callback<Count>().evaluated == 2 * run.limit);
  }
}

TEST_CASE("an evaluation outside of a training is limited, a prediction isn't") {
  etude::Trainer<Callback, Count> trainer(toy::options(toy::arguments(), 2, 20), Callback{.num_batches = 3});
  trainer.evaluate();
  CHECK(trainer.callback<Count>().evaluated == 3);
  const auto [x, y] = toy::points(7);
  CHECK(trainer.predict(x).predictions.single().size(0) == 7);
}

TEST_CASE("the smallest of several limits counts") {
  struct Other {
    void on(etude::DataLoaderCreated& e) { e.max_batches = 2; }
  };
  for (const std::int64_t limit : {1, 4}) {
    etude::Trainer<Other, Callback> trainer(toy::options(toy::arguments(), 6),
                                            Callback{.num_batches = limit});
    CHECK(trainer.train().global_step == std::min<std::int64_t>(limit, 2));
  }
}

TEST_CASE("a number below 1 is refused") {
  CHECK_THROWS_WITH_AS(etude::Trainer<Callback>(toy::options(toy::arguments())),
                       "num_batches is 0: must be at least 1", etude::ArgumentError);
}

}  // namespace callbacks_limit_batches_test
