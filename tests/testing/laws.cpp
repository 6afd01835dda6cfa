#include "etude/testing/laws.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "common/ranks.hpp"
#include "common/silence.hpp"
#include "common/toy.hpp"
#include "etude/base/error.hpp"
#include "etude/callbacks/convert_sync_batch_norm.hpp"
#include "etude/callbacks/early_stopping.hpp"
#include "etude/callbacks/loss_spike.hpp"
#include "etude/callbacks/metric_callback.hpp"
#include "etude/callbacks/mixup.hpp"
#include "etude/callbacks/model_ema.hpp"
#include "etude/callbacks/move_modules_to_device.hpp"
#include "etude/callbacks/stochastic_weight_averaging.hpp"
#include "etude/callbacks/terminate_on_nan.hpp"
#include "etude/callbacks/underflow_overflow.hpp"
#include "etude/metrics/f_beta.hpp"
#include "etude/tune/learning_rate_finder.hpp"

namespace testing_laws_test {

using etude::laws::broken;
using etude::laws::check;

constexpr std::string_view ends = "every begin has an end";
constexpr std::string_view resumes = "restored state continues identically";
constexpr std::string_view reads = "a callback that only reads changes nothing";
constexpr std::string_view apart = "two instances share nothing";

/// The distinct laws named in these lines.
std::set<std::string_view> laws_in(const std::vector<std::string>& lines) {
  std::set<std::string_view> named;
  for (const auto& line : lines)
    for (const auto law : {ends, resumes, reads, apart})
      if (line.starts_with(law)) named.insert(law);
  return named;
}
using Named = std::set<std::string_view>;

using toy::Silence;

const std::vector<std::string> nothing;

TEST_CASE("the default flow, early stopping and batch mixing keep the laws") {
  CHECK(broken<etude::DefaultFlowCallback>() == nothing);
  CHECK(broken<etude::EarlyStoppingCallback>() == nothing);
  // The training stops at the third step, since no evaluation improves by 0.5.
  CHECK(broken<etude::EarlyStoppingCallback>([] {
          return etude::EarlyStoppingCallback{.early_stopping_patience = 2, .early_stopping_threshold = 0.5};
        }) == nothing);
  CHECK(broken<etude::MetricCallback<etude::metrics::F1>>() == nothing);
  // A mixed batch no longer has class labels that a second callback could mix.
  const etude::laws::Options alone{.two_in_one_trainer = false};
  CHECK(broken<etude::MixUp>([] { return etude::MixUp({.num_classes = 3}); }, alone) == nothing);
  CHECK(broken<etude::CutMix>([] { return etude::CutMix({.num_classes = 3}); }, alone) == nothing);
}

TEST_CASE("callbacks that print keep the laws") {
  std::vector<std::string> printer, bar;
  {
    const Silence silence;
    printer = broken<etude::PrinterCallback>();
    bar = broken<etude::ProgressCallback>(
        {.prepare = [](etude::TrainerOptions& options) { options.args.disable_tqdm = false; }});
  }
  CHECK(printer == nothing);
  CHECK(bar == nothing);
}

/// Keeps all laws although it has state, logs values, makes requests, measures time, writes a file, and swaps
/// weights.
struct Good {
  ETUDE_STRUCT(Good, (std::int64_t, count, "update steps", 0), (double, step_time, "of all, in s", 0.0));
  std::filesystem::path folder = {};

  void on(const etude::TrainBegin& e) {
    if (e.state.log_history.empty()) count = 0;
    std::ofstream(folder / "begun", std::ios::app) << count << '\n';
  }
  void on(const etude::StepEnd& e) {
    ++count;
    step_time += std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
    e.log("count", static_cast<double>(count));
    e.log("step_time", step_time);
    e.log("step_mem_delta", step_time);  // varies between runs
    if (count == 5) e.control.request_stop("five are enough");
  }
  void on(const etude::EvaluateBegin& e) {
    was = e.model.parameters().front().detach().clone();
    e.model.parameters().front().data().mul_(0.5);
  }
  void on(const etude::EvaluateEnd& e) {
    if (was.defined()) e.model.parameters().front().data().copy_(was);
    was.reset();
  }
  torch::Tensor was = {};
};

TEST_CASE("a custom callback that keeps the laws passes") {
  // Each of two instances would restore the weights that the other had changed.
  const auto make = [](const std::filesystem::path& folder) { return Good{.folder = folder}; };
  CHECK(broken<Good>(make, {.two_in_one_trainer = false}) == nothing);
  CHECK(laws_in(broken<Good>(make)) == Named{apart});
}

struct StaticCounter {
  ETUDE_STRUCT(StaticCounter, (std::int64_t, count, "update steps", 0));
  void on(const etude::StepEnd&) { count = ++counted; }
  static inline std::int64_t counted = 0;
};

/// Works if two instances are used one after the other.
struct StaticCounterOfTheRun {
  ETUDE_STRUCT(StaticCounterOfTheRun, (std::int64_t, count, "update steps", 0));
  void on(const etude::TrainBegin& e) { counted = e.state.global_step; }
  void on(const etude::StepEnd&) { count = ++counted; }
  static inline std::int64_t counted = 0;
};

/// The same counter in a callback that writes an event.
struct StaticCounterThatWrites : StaticCounterOfTheRun {
  using StaticCounterOfTheRun::on;
  void on(etude::Log& e) { e.logs["count"] = static_cast<double>(counted); }
};

TEST_CASE("a static counter is reported as shared by two instances") {
  CHECK(laws_in(broken<StaticCounter>()) == Named{apart});
  CHECK(laws_in(broken<StaticCounterThatWrites>()) == Named{apart});
  const auto lines = broken<StaticCounterOfTheRun>();
  CHECK(laws_in(lines) == Named{apart});
  CHECK(std::ranges::count_if(lines, [](const auto& line) { return line.find("between") != line.npos; }) ==
        1);
  CHECK(std::ranges::count_if(lines, [](const auto& line) {
          return line ==
                 "two instances share nothing: two in one trainer: of the first, "
                 "its state.attributes.count is 11, and was 6";
        }) == 1);
}

struct LeavesEvaluationMode {
  void on(const etude::StepEnd& e) {
    if (e.state.global_step == 6) e.model.eval();
  }
};
struct StopsDropout {
  void on(const etude::StepEnd& e) { e.model.eval(); }
};

TEST_CASE("a model that is left in evaluation mode is reported") {
  const auto lines = broken<LeavesEvaluationMode>();
  CHECK(laws_in(lines).contains(ends));
  CHECK(
      lines.front() ==
      "every begin has an end: after the training model is in evaluation mode, unlike without the callback");
  const auto laws = laws_in(broken<StopsDropout>());
  CHECK(laws.contains(ends));
  CHECK(laws.contains(reads));
}

struct Draws {
  void on(const etude::StepEnd& e) {
    if (e.state.global_step == 3) drawn = torch::rand({1}).item<double>();
  }
  double drawn = 0;
};
struct Pushes {
  void on(const etude::PreOptimizerStep& e) { e.model.parameters().back().mutable_grad().mul_(2); }
};
struct StopsInSecret {
  void on(const etude::StepEnd& e) {
    if (e.state.global_step == 2) e.control.should_epoch_stop = true;
  }
};

struct StopsAtOnce {
  void on(const etude::SubstepEnd& e) {
    if (e.state.global_step == 1) throw etude::StopTraining("enough");
  }
};

TEST_CASE("a drawn random number and a changed gradient are reported, but a request isn't") {
  const auto lines = broken<Draws>();
  CHECK(lines == std::vector<std::string>{std::string(reads) +
                                          ": it changes, first seen at StepEnd of step 3, the random numbers "
                                          "to come"});
  const auto pushed = broken<Pushes>();
  CHECK(laws_in(pushed) == Named{reads});
  CHECK(pushed.front().find("at OptimizerStep of step 0, the weights: ") != std::string::npos);
  CHECK(broken<Draws>({.only_reads = false}) == nothing);
  CHECK(broken<StopsInSecret>() == nothing);
  CHECK(broken<StopsAtOnce>() == nothing);
}

/// Restarts its count when a run is resumed.
struct Forgets {
  ETUDE_STRUCT(Forgets, (std::int64_t, count, "update steps", 0));
  void on(const etude::TrainBegin&) { count = 0; }
  void on(const etude::StepEnd&) { ++count; }
};
/// Logs a count that isn't saved.
struct ForgetsItsLog {
  std::int64_t count = 0;
  void on(const etude::TrainBegin&) { count = 0; }
  void on(const etude::StepEnd& e) { e.log("count", static_cast<double>(++count)); }
};
struct GivesWrongState {
  void on(const etude::StepEnd&) {}
  nlohmann::ordered_json state() const { return {{"count", 1}}; }
  void load_state(const nlohmann::ordered_json& state) { state.at("counter"); }
};

TEST_CASE("state that is lost on resume is reported, with the step and the difference") {
  const auto lines = broken<Forgets>();
  CHECK(lines ==
        std::vector<std::string>{
            std::string(resumes) + ": resumed at step 1: its state.attributes.count is 5, and was 6",
            std::string(resumes) + ": resumed at step 2: its state.attributes.count is 4, and was 6",
            std::string(resumes) + ": resumed at step 3: its state.attributes.count is 3, and was 6",
            std::string(resumes) + ": resumed at step 4: its state.attributes.count is 2, and was 6",
            std::string(resumes) + ": resumed at step 5: its state.attributes.count is 1, and was 6"});
  CHECK(laws_in(broken<ForgetsItsLog>()) == Named{resumes});
  CHECK(laws_in(broken<GivesWrongState>()) == Named{resumes});
}

struct ThrowsAtTheSecond {
  void on(const etude::TrainBegin&) {
    if (begun) throw std::runtime_error("begun already");
    begun = true;
  }
  bool begun = false;
};
/// Assumes that an end event is never raised without its begin event.
struct ThrowsAtTheEnd {
  void on(const etude::TrainBegin&) { open = true; }
  void on(const etude::TrainEnd&) {
    if (!open) throw std::logic_error("not open");
    open = false;
  }
  bool open = false;
};
/// Doesn't restore the weights if an evaluation fails.
struct KeepsWeights {
  void on(const etude::EvaluateBegin& e) {
    was = e.model.parameters().front().detach().clone();
    e.model.parameters().front().data().mul_(0.5);
  }
  void on(const etude::Evaluate& e) { e.model.parameters().front().data().copy_(was); }
  torch::Tensor was = {};
};
struct CountsAllRuns {
  ETUDE_STRUCT(CountsAllRuns, (std::int64_t, count, "update steps", 0));
  void on(const etude::StepEnd&) { ++count; }
};

TEST_CASE("missing end events and failing second trainings are reported") {
  const auto lines = broken<ThrowsAtTheSecond>();
  CHECK(laws_in(lines) == Named{ends});
  CHECK(lines.front() ==
        std::string(ends) +
            ": another train() after a whole training: it throws in TrainBegin: begun already");

  CHECK(broken<ThrowsAtTheEnd>() ==
        std::vector<std::string>{
            std::string(ends) + ": after an exception of an earlier callback in TrainBegin: it throws in "
                                "TrainEnd: not open",
            std::string(ends) + ": after StopTraining thrown by an earlier callback in TrainBegin: it throws "
                                "in TrainEnd: not open"});

  const auto kept = broken<KeepsWeights>({.two_in_one_trainer = false});
  CHECK(laws_in(kept) == Named{ends});
  CHECK(
      kept.front().find("the model's forward in an evaluation: the weights are not restored at EvaluateEnd: "
                        "the weights: first.weight") != std::string::npos);

  CHECK(laws_in(broken<CountsAllRuns>()) == Named{ends});
  CHECK(broken<CountsAllRuns>({.keeps_state_between_runs = true}) == nothing);
}

TEST_CASE("check throws an error with all lines, and another one if the callback can't work") {
  CHECK_NOTHROW(check<etude::DefaultFlowCallback>());
  CHECK_THROWS_WITH_AS(
      check<Draws>(),
      "Draws breaks the laws of callbacks:\n- a callback that only reads changes nothing: it changes, "
      "first seen at StepEnd of step 3, the random numbers to come",
      etude::laws::LawBroken);
  CHECK_THROWS_WITH_AS(
      check<etude::EarlyStoppingCallback>({.prepare =
                                               [](etude::TrainerOptions& options) {
                                                 options.args.eval_strategy = etude::IntervalStrategy::no;
                                                 options.eval_dataset = {};
                                               }}),
      doctest::Contains("EarlyStoppingCallback can't do its work on the problem of etude::laws"),
      etude::Error);
}

/// Changes the weights of one process.
struct PullsApart {
  void on(const etude::StepEnd& e) {
    if (e.args.process_index() == 1 && e.state.global_step == 2) e.model.parameters().back().data().add_(1);
  }
};

TEST_CASE("in two processes, callbacks that stop or keep losses keep the laws") {
  if (toy::launches(2)) return;
  CHECK(broken<etude::EarlyStoppingCallback>([] {
          return etude::EarlyStoppingCallback{.early_stopping_patience = 2, .early_stopping_threshold = 0.5};
        }) == nothing);
  CHECK(broken<etude::LossSpikeCallback>() == nothing);
}

TEST_CASE("in two processes, callbacks that average weights and batches keep the laws") {
  if (toy::launches(2)) return;
  CHECK(broken<etude::ModelEmaCallback>() == nothing);
  CHECK(broken<etude::ConvertSyncBatchNormCallback>({.only_reads = false}) == nothing);
}

TEST_CASE("in two processes, a callback that pulls them apart is reported, but not a good one") {
  if (toy::launches(2)) return;
  const auto make = [](const std::filesystem::path& folder) { return Good{.folder = folder}; };
  CHECK(broken<Good>(make, {.two_in_one_trainer = false}) == nothing);
  const bool first = toy::rank() == 0;
  CHECK(laws_in(broken<PullsApart>({.only_reads = false})).contains(ends) == !first);
}

}  // namespace testing_laws_test
