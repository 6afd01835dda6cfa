// Requests are honoured at the moments that TrainerControl documents.

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "common/folder.hpp"
#include "common/toy.hpp"

namespace loop_requests_test {

/// Requests everything in the first event `When` at step `at`.
template <class When>
struct Asks {
  std::int64_t at = 0;
  bool has_asked = false;
  void on(const When& e) {
    if (has_asked || e.state.global_step < at) return;
    has_asked = true;
    e.control.should_log = e.control.should_evaluate = e.control.should_save = true;
  }
};

/// The course of a training, with the step at which each request is honoured.
struct Course {
  std::string events;
  void add(std::string_view name, const etude::Context& e) {
    events += fmt::format("{}{} ", name, e.state.global_step);
  }
  void on(const etude::StepEnd& e) { add("step", e); }
  void on(const etude::EpochEnd& e) { add("epoch", e); }
  void on(const etude::TrainingRunEpochEnd& e) { add("run_epoch", e); }
  void on(const etude::Log& e) {
    if (e.logs.contains("loss")) add("log", e);
  }
  void on(const etude::Evaluate& e) { add("evaluate", e); }
  void on(const etude::Save& e) { add("save", e); }
  void on(const etude::TrainEnd& e) { add("end", e); }
};

/// Two epochs of two steps.
template <class When>
std::string course(std::int64_t at = 0) {
  const toy::Folder folder;
  auto args = toy::arguments();
  args.output_dir = folder / "out";
  args.num_train_epochs = 2;
  args.save_strategy = etude::SaveStrategy::steps;
  args.save_steps = 100;
  etude::Trainer<etude::NoDefaultCallbacks, Asks<When>, Course> trainer(toy::options(args), Asks<When>{at});
  trainer.train();
  return trainer.template callback<Course>().events;
}

TEST_CASE(
    "requests are honoured after the step under way or the next, in the order log, evaluation, checkpoint") {
  const std::string after_first =
      "step1 log1 evaluate1 save1 step2 epoch2 run_epoch2 step3 step4 epoch4 run_epoch4 end4 ";
  CHECK(course<etude::TrainBegin>() == after_first);
  CHECK(course<etude::EpochBegin>() == after_first);
  CHECK(course<etude::StepBegin>() == after_first);
  CHECK(course<etude::OptimizerStep>() == after_first);
  CHECK(course<etude::StepEnd>() == after_first);
}

TEST_CASE(
    "requests made at the end of an epoch are honoured there, and those made behind it after the next step") {
  CHECK(course<etude::EpochEnd>() ==
        "step1 step2 epoch2 log2 evaluate2 save2 run_epoch2 step3 step4 epoch4 run_epoch4 end4 ");
  CHECK(course<etude::TrainingRunEpochEnd>() ==
        "step1 step2 epoch2 run_epoch2 step3 log3 evaluate3 save3 step4 epoch4 run_epoch4 end4 ");
  CHECK(course<etude::TrainingRunEpochEnd>(4) ==
        "step1 step2 epoch2 run_epoch2 step3 step4 epoch4 run_epoch4 log4 evaluate4 save4 end4 ");
}

/// Stops the training, or the epoch, in the first event `When`.
template <class When, bool whole>
struct Stops {
  bool has_stopped = false;
  void on(const When& e) {
    if (std::exchange(has_stopped, true)) return;
    (whole ? e.control.should_training_stop : e.control.should_epoch_stop) = true;
  }
};

/// Two epochs of one step of two micro-batches.
template <class When, bool whole>
std::string course_of_stop() {
  auto args = toy::arguments();
  args.num_train_epochs = 2;
  args.gradient_accumulation_steps = 2;
  etude::Trainer<etude::NoDefaultCallbacks, Stops<When, whole>, Course> trainer(toy::options(args));
  trainer.train();
  return trainer.template callback<Course>().events;
}

TEST_CASE(
    "a stop comes true before the next step or micro-batch; a step that has its gradients is finished") {
  CHECK(course_of_stop<etude::TrainBegin, true>() == "end0 ");
  CHECK(course_of_stop<etude::EpochBegin, true>() == "epoch0 run_epoch0 end0 ");
  CHECK(course_of_stop<etude::StepBegin, true>() == "epoch0 run_epoch0 end0 ");
  CHECK(course_of_stop<etude::SubstepEnd, true>() == "epoch0 run_epoch0 end0 ");
  CHECK(course_of_stop<etude::GradientsComplete, true>() == "step1 epoch1 run_epoch1 end1 ");
  CHECK(course_of_stop<etude::StepEnd, true>() == "step1 epoch1 run_epoch1 end1 ");
  const std::string without_first = "epoch0 run_epoch0 step1 epoch1 run_epoch1 end1 ";
  CHECK(course_of_stop<etude::EpochBegin, false>() == without_first);
  CHECK(course_of_stop<etude::SubstepEnd, false>() == without_first);
  CHECK(course_of_stop<etude::GradientsComplete, false>() ==
        "step1 epoch1 run_epoch1 step2 epoch2 run_epoch2 end2 ");
}

}  // namespace loop_requests_test
