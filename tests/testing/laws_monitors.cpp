#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <vector>

#include "common/fault_of.hpp"
#include "common/silence.hpp"
#include "common/toy.hpp"
#include "etude/callbacks/callback_times.hpp"
#include "etude/callbacks/device_memory.hpp"
#include "etude/callbacks/evaluation_samples.hpp"
#include "etude/callbacks/file_logger.hpp"
#include "etude/callbacks/learning_rate_monitor.hpp"
#include "etude/callbacks/model_summary.hpp"
#include "etude/callbacks/norm_monitor.hpp"
#include "etude/callbacks/parameter_groups.hpp"
#include "etude/callbacks/predictions_to_csv.hpp"
#include "etude/callbacks/profiler.hpp"
#include "etude/callbacks/report.hpp"
#include "etude/callbacks/throughput.hpp"
#include "etude/callbacks/underflow_overflow.hpp"
#include "etude/testing/laws.hpp"

namespace testing_laws_monitors_test {

// Checks the laws for monitors and loggers.

using etude::laws::broken;
using etude::laws::Options;

const std::vector<std::string> nothing;

TEST_CASE("monitors keep the laws") {
  CHECK(broken<etude::LearningRateMonitor>() == nothing);
  CHECK(broken<etude::GradientNormMonitor>([] { return etude::GradientNormMonitor{.every_n_steps = 2}; }) ==
        nothing);
  CHECK(broken<etude::ParameterNormMonitor>([] { return etude::ParameterNormMonitor{.every_n_steps = 2}; }) ==
        nothing);
  CHECK(broken<etude::ClippedGradientNormMonitor>(
            [] { return etude::ClippedGradientNormMonitor{.every_n_steps = 2}; }) == nothing);
  const Options timed{.varying = {"batches_per", "samples_per", "data_wait", "window"}};
  CHECK(broken<etude::ThroughputMonitor>(timed) == nothing);
  CHECK(broken<etude::DeviceMemoryMonitor>() == nothing);
  CHECK(broken<etude::MemoryMetricsCallback>() == nothing);
}

TEST_CASE("loggers to files keep the laws") {
  CHECK(broken<etude::CSVLoggerCallback>() == nothing);
  CHECK(broken<etude::JSONLinesLoggerCallback>() == nothing);
  CHECK(broken<etude::PredictionsToCSVCallback>() == nothing);
}

TEST_CASE("the page of a training keeps the laws") {
  CHECK(broken<etude::ReportCallback>(Options{.varying = {"run_id"}}) == nothing);
}

TEST_CASE("samples of evaluations keep the laws") {
  CHECK(broken<etude::EvaluationSamplesCallback>([] {
          return etude::EvaluationSamplesCallback{.make = [](const etude::Evaluate&) {
            return std::vector{etude::text_sample("noise", std::to_string(torch::rand({}).item<double>()))};
          }};
        }) == nothing);
}

TEST_CASE("callbacks that inspect the model and the machine keep the laws") {
  CHECK(broken<etude::ModelSummaryCallback>([] {
          etude::ModelSummaryCallback callback;
          callback.print = [](std::string_view) {};
          return callback;
        }) == nothing);
  CHECK(broken<etude::ParameterGroupsCallback>(
            [] { return etude::ParameterGroupsCallback{.print = [](std::string_view) {}}; }) == nothing);
  const Options alone{.two_in_one_trainer = false};  // only one can be active per process
  CHECK(broken<etude::DebugUnderflowOverflowCallback>(alone) == nothing);
  CHECK(broken<etude::ProfilerCallback>({.two_in_one_trainer = false, .two_at_once = false}) == nothing);
  const toy::Silence silence;
  CHECK(broken<etude::CallbackTimes>() == nothing);
}

}  // namespace testing_laws_monitors_test
