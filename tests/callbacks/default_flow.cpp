#include "etude/callbacks/default_flow.hpp"

#include <doctest/doctest.h>

#include "common/toy.hpp"

// What it asks for, and when, is in the sequences of tests/events.cpp.

namespace {

TEST_CASE("an interval of several steps falls on its multiples only") {
  auto args = toy::arguments();
  args.logging_strategy = etude::IntervalStrategy::steps;
  args.logging_steps = 3;
  etude::Trainer<> trainer(toy::options(args, 8));
  trainer.train();
  std::vector<std::int64_t> steps;
  for (const auto& line : trainer.state().log_history) steps.push_back(line.at("step").get<std::int64_t>());
  CHECK(steps == std::vector<std::int64_t>{3, 6, 8});
}

struct AsksAtTheLastStep {
  void on(const etude::StepEnd& e) {
    if (e.state.global_step == e.state.max_steps) e.control.should_log = true;
  }
};

TEST_CASE("what it doesn't ask for, another callback may") {
  etude::Trainer<AsksAtTheLastStep> trainer(toy::options(toy::arguments(), 3));
  trainer.train();
  CHECK(trainer.state().log_history.size() == 2);
}

}  // namespace
