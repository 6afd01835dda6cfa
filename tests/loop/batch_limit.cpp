#include "etude/loop/batch_limit.hpp"

#include <doctest/doctest.h>
#include <stdlib.h>

#include "common/toy.hpp"
#include "etude/base/error.hpp"
#include "etude/callbacks/limit_batches.hpp"

namespace loop_batch_limit_test {

constexpr const char* variable = "ETUDE_LIMIT_BATCHES";

struct Unset {
  Unset() { ::unsetenv(variable); }
  ~Unset() { ::unsetenv(variable); }
};

struct Count {
  std::int64_t evaluated = 0;
  void on(const etude::PredictionStep&) { ++evaluated; }
};

TEST_CASE("a scope limits the trainers that run in it, and none afterwards") {
  const Unset unset;
  auto args = toy::arguments();
  args.gradient_accumulation_steps = 2;
  etude::Trainer<Count> trainer(toy::options(args, 8, 8));
  const auto [x, y] = toy::points(8);
  {
    const etude::LimitBatches limit(3);
    CHECK(trainer.train().global_step == 2);
    CHECK(trainer.state().max_steps == 2);
    trainer.evaluate();
    CHECK(trainer.callback<Count>().evaluated == 3);
    CHECK(trainer.predict(x).predictions.single().size(0) == 8);
  }
  CHECK(trainer.train().global_step == 4);
}

TEST_CASE("a scope restores the variable") {
  const Unset unset;
  {
    const etude::LimitBatches outer(5);
    CHECK(etude::batch_limit_of_environment() == 5);
    {
      const etude::LimitBatches inner(2);
      CHECK(etude::batch_limit_of_environment() == 2);
    }
    CHECK(etude::batch_limit_of_environment() == 5);
  }
  CHECK(::getenv(variable) == nullptr);
  CHECK_THROWS_WITH_AS(etude::LimitBatches(0), "num_batches is 0: must be at least 1", etude::ArgumentError);
  CHECK(::getenv(variable) == nullptr);
}

TEST_CASE("the smaller of the variable and a callback's limit applies") {
  const Unset unset;
  for (const std::int64_t limit : {1, 4}) {
    const etude::LimitBatches scope(2);
    etude::Trainer trainer(toy::options(toy::arguments(), 6),
                           etude::LimitBatchesCallback{.num_batches = limit});
    CHECK(trainer.train().global_step == std::min<std::int64_t>(limit, 2));
  }
}

TEST_CASE("an invalid number of batches is refused by name, and an empty one means no limit") {
  const Unset unset;
  for (const char* text : {"", "none"}) {
    ::setenv(variable, text, 1);
    CHECK_FALSE(etude::batch_limit_of_environment().has_value());
  }
  for (const char* text : {"0", "-1", "3x", "3 4", "three", "1.5", "99999999999999999999"}) {
    CAPTURE(text);
    ::setenv(variable, text, 1);
    CHECK_THROWS_WITH_AS(
        static_cast<void>(etude::batch_limit_of_environment()),
        fmt::format("ETUDE_LIMIT_BATCHES is '{}': must be a whole number of at least 1, or none", text)
            .c_str(),
        etude::ArgumentError);
  }
}

}  // namespace loop_batch_limit_test
