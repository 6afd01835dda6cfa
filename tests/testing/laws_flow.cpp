#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "common/silence.hpp"
#include "common/toy.hpp"
#include "etude/callbacks/gradient_accumulation_scheduler.hpp"
#include "etude/callbacks/limit_batches.hpp"
#include "etude/callbacks/limit_eval_steps.hpp"
#include "etude/callbacks/log_metrics.hpp"
#include "etude/callbacks/move_modules_to_device.hpp"
#include "etude/callbacks/print_progress.hpp"
#include "etude/callbacks/step_based_evaluation.hpp"
#include "etude/callbacks/terminate_on_nan.hpp"
#include "etude/callbacks/timer.hpp"
#include "etude/testing/laws.hpp"

namespace testing_laws_flow_test {

// Checks the laws for callbacks that control a training's flow.

using etude::laws::broken;
using etude::laws::Options;

const std::vector<std::string> nothing;

TEST_CASE("callbacks that limit batches and request evaluations keep the laws") {
  CHECK(broken<etude::LimitBatchesCallback>([] { return etude::LimitBatchesCallback{5}; }) == nothing);
  CHECK(broken<etude::LimitEvalStepsCallback>([] { return etude::LimitEvalStepsCallback{1}; }) == nothing);
  CHECK(broken<etude::StepBasedEvaluationCallback>([] { return etude::StepBasedEvaluationCallback{2}; }) ==
        nothing);
  CHECK(broken<etude::GradientAccumulationScheduler>([] {
          return etude::GradientAccumulationScheduler{{{1, 3}}};
        }) == nothing);
}

TEST_CASE("callbacks that stop a training keep the laws") {
  CHECK(broken<etude::TerminateOnNaNCallback>() == nothing);
  CHECK(broken<etude::TimerCallback>([] { return etude::TimerCallback{.duration = "01:00:00:00"}; }) ==
        nothing);
}

TEST_CASE("the run history and the callbacks that print it keep the laws") {
  CHECK(broken<etude::RunHistoryCallback>() == nothing);
  const toy::Silence silence;
  CHECK(broken<etude::LogMetricsCallback>() == nothing);
  CHECK(broken<etude::PrintProgressCallback>() == nothing);
}

TEST_CASE("moving modules that the trainer doesn't know keeps the laws") {
  const torch::nn::Linear head(2, 2);
  CHECK(broken<etude::MoveModulesToDeviceCallback>(
            [&] { return etude::MoveModulesToDeviceCallback(head); }) == nothing);
}

}  // namespace testing_laws_flow_test
