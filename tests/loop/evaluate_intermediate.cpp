#include <doctest/doctest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "common/toy.hpp"
#include "etude/callbacks/step_based_evaluation.hpp"

namespace loop_evaluate_intermediate_test {

/// Records `is_intermediate` of each event of the evaluations.
struct Places {
  std::vector<bool> training = {}, loaders = {}, begins = {}, evaluations = {}, all = {};
  void on(const etude::DataLoaderCreated& e) {
    (e.use == etude::LoaderUse::train ? training : loaders).push_back(e.is_intermediate);
  }
  void on(const etude::EvaluateBegin& e) { begins.push_back(e.is_intermediate); }
  void on(const etude::Evaluate& e) { evaluations.push_back(e.is_intermediate); }
  void on(const etude::EvaluateAll& e) { all.push_back(e.is_intermediate); }

  void check(const std::vector<bool>& expected) const {
    for (const auto& found : {loaders, begins, evaluations, all}) CHECK(found == expected);
    CHECK(training == std::vector<bool>{false});
  }
};

/// Evaluates at each event of this name.
struct EvaluatesIn {
  std::string event = {};
  template <std::derived_from<etude::Context> Event>
  void on(const Event& e) {
    if (etude::short_type_name<Event>() == event) e.trainer.evaluate();
  }
};

TEST_CASE("an evaluation reports whether it is within an epoch") {
  auto args = toy::arguments();
  args.num_train_epochs = 2;
  args.eval_on_start = true;
  args.eval_strategy = etude::IntervalStrategy::epoch;
  etude::Trainer<etude::StepBasedEvaluationCallback, Places> trainer(
      toy::options(args, 2), etude::StepBasedEvaluationCallback{.eval_every_n_steps = 1});
  trainer.train();
  // At the start, then in each of two epochs after both steps and at its end.
  std::vector<bool> expected{false, true, true, false, true, true, false};
  trainer.callback<Places>().check(expected);
  expected.push_back(false);
  trainer.evaluate();
  trainer.callback<Places>().check(expected);

  const auto asked_in = [](const std::string& event, bool answer) {
    CAPTURE(event);
    etude::Trainer<Places, EvaluatesIn> asking(toy::options(toy::arguments(), 1), EvaluatesIn{event});
    asking.train();
    asking.callback<Places>().check({answer});
  };
  for (const char* in_steps : {"BatchFetched", "StepBegin", "OptimizerStep", "StepEnd"})
    asked_in(in_steps, true);
  for (const char* outside : {"TrainBegin", "EpochBegin", "EpochEnd", "TrainingRunEpochEnd", "TrainEnd"})
    asked_in(outside, false);
}

TEST_CASE("an evaluation while an exception ends the training isn't within an epoch") {
  struct Fails {
    void on(const etude::StepEnd&) { throw std::runtime_error("no"); }
  };
  for (const char* event : {"EpochEnd", "TrainEnd"}) {
    etude::Trainer<Places, EvaluatesIn, Fails> trainer(toy::options(toy::arguments()), EvaluatesIn{event});
    CHECK_THROWS_WITH(trainer.train(), "no");
    trainer.evaluate();
    trainer.callback<Places>().check({false, false});
  }
}

TEST_CASE("an evaluation that a resumed run repeats reports the same") {
  struct Fails {
    int evaluation = 0;
    void on(const etude::PredictionStep&) {
      if (--evaluation == 0) throw std::runtime_error("no");
    }
  };
  using Trainer = etude::Trainer<etude::StepBasedEvaluationCallback, Places, Fails>;
  // The evaluations come at steps 1, 2 and 3 and at the end, which a greater `max_steps` moves.
  for (const int n : {1, 3, 4})
    for (const std::int64_t max_steps : {3, 4}) {
      CAPTURE(n);
      CAPTURE(max_steps);
      const toy::Folder folder;
      auto args = toy::arguments();
      toy::save_to(folder, args, 100);
      args.save_on_exception = true;
      args.eval_strategy = etude::IntervalStrategy::epoch;
      args.max_steps = 3;
      const etude::StepBasedEvaluationCallback each_step{.eval_every_n_steps = 1};
      Trainer first(toy::options(args, 5), each_step, Fails{n});
      CHECK_THROWS_WITH(first.train(), "no");
      args.max_steps = max_steps;
      Trainer resumed(toy::options(args, 5), each_step, Fails{});
      resumed.train({.resume_from_checkpoint = true});
      const auto& places = resumed.callback<Places>();
      REQUIRE(!places.all.empty());
      CHECK(places.all.front() == (n < 4));
      places.check(places.all);
    }
}

}  // namespace loop_evaluate_intermediate_test
