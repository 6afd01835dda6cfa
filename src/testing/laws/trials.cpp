#include "etude/testing/laws/trials.hpp"

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/parallel/communicator.hpp"
#include "etude/parallel/distributed_data_parallel.hpp"
#include "etude/testing/laws/compare.hpp"
#include "etude/testing/laws/performance.hpp"

namespace etude::inline v0::laws::detail {

namespace {

/// Runs all trials of one callback.
class Trials {
 public:
  Trials(const Trial& trial, const Options& options)
      : trial_(trial),
        options_(options),
        varying_(options.varying),
        only_reads_(options.only_reads.value_or(!trial.writes)) {}

  std::vector<std::string> run() {
    first_ = perform({}).train();
    if (any(!first_.error.empty()))
      throw Error(
          fmt::format("{} can't do its work on the problem of etude::laws, so set its needs in "
                      "etude::laws::Options: {}",
                      trial_.name, first_.error));
    try_reading();
    try_two();
    try_ends();
    try_resuming();
    communicator_->barrier();  // until here, all processes read the first process's folder
    return std::move(lines_);
  }

 private:
  static constexpr std::string_view ends = "every begin has an end";
  static constexpr std::string_view resumes = "restored state continues identically";
  static constexpr std::string_view reads = "a callback that only reads changes nothing";
  static constexpr std::string_view apart = "two instances share nothing";

  /// True if the condition holds in any process, so that all take the same branch.
  bool any(bool value) {
    const auto count = torch::tensor(value ? 1 : 0, torch::kInt);
    communicator_->sum(count);
    return count.item<int>() > 0;
  }
  bool are_several() const { return communicator_->world_size() > 1; }

  Performance perform(Setting setting) {
    setting.folder = root_ / fmt::format("{}", ++performances_);
    return {trial_, options_, setting};
  }

  void report(std::string_view law, const std::string& what) {
    constexpr int most = 5;  // any more are likely repeats
    const auto reported =
        std::ranges::count_if(lines_, [&](const auto& line) { return line.starts_with(law); });
    if (reported < most) lines_.push_back(fmt::format("{}: {}", law, what));
  }

  void report_breaches(const Run& run, const std::string& where) {
    for (const auto& breach : run.breaches) report(ends, fmt::format("{}: {}", where, breach));
    if (run.breaches.empty() && !run.error.empty())
      report(ends, fmt::format("{}: it ends with: {}", where, run.error));
  }

  void try_reading() {
    const auto without = perform({.subjects = 0}).train();
    const auto& modes = without.moments.back().modes;
    const auto& seen_modes = first_.moments.back().modes;
    for (std::size_t i = 0; i < std::min(modes.size(), seen_modes.size()); ++i)
      if (modes[i] != seen_modes[i])
        report(ends, fmt::format("after the training {} is in {} mode, unlike without the callback",
                                 modes[i].first, seen_modes[i].second ? "training" : "evaluation"));
    if (!only_reads_) return;
    const auto count = first_.asked ? *first_.asked : first_.moments.size();
    for (std::size_t i = 0; i < count; ++i) {
      const auto& is = first_.moments[i];
      if (i >= without.moments.size() || without.moments[i].event != is.event ||
          without.moments[i].step != is.step) {
        // If the callback itself throws StopTraining, open scopes are closed before the reason is known.
        if (!first_.asked)
          report_reading(fmt::format("the training takes a different course {}", is.words()));
        return;
      }
      if (const auto found = difference(without.moments[i], is))
        return report_reading(fmt::format("it changes, first seen {}, {}", is.words(), *found));
    }
    if (!first_.asked && without.moments.size() != count)
      report_reading("the training is shorter than without it, and it has not requested that");
  }

  void report_reading(const std::string& what) {
    only_read_ = false;
    report(reads, what);
  }

  void try_two() {
    const auto again = perform({}).train();
    if (const auto found = difference(first_, again, varying_)) {
      is_repeatable_ = false;
      report(apart, fmt::format("in a second trainer, after the first, {}", *found));
    }
    if (options_.two_at_once) try_one_inside_another();
    if (!options_.two_in_one_trainer) return;
    const auto both = perform({.subjects = 2}).train();
    for (const auto& breach : both.breaches) report(apart, fmt::format("two in one trainer: {}", breach));
    if (both.breaches.empty() && !both.error.empty())
      report(apart, fmt::format("two in one trainer end with: {}", both.error));
    else if (is_repeatable_ && only_reads_ && only_read_)
      compare_two(both);
  }

  void try_one_inside_another() {
    Run inner;
    const auto outer = perform({.inside = [&] { inner = perform({}).train(); }}).train();
    if (!is_repeatable_) return;
    if (const auto found = difference(first_, outer, varying_))
      report(apart, fmt::format("with another that trained in between, {}", *found));
    if (const auto found = difference(first_, inner, varying_); found && !inner.moments.empty())
      report(apart, fmt::format("in a trainer inside another's training, {}", *found));
  }

  /// Callbacks that write see each other's changes, but that isn't shared state.
  void compare_two(const Run& both) {
    for (std::size_t i = 0; i < both.states.size(); ++i)
      if (const auto found = difference(first_.states.front(), both.states[i], varying_, "its state"))
        return report(apart,
                      fmt::format("two in one trainer: of the {}, {}", i == 0 ? "first" : "second", *found));
    // Values that both log are averaged, so they are summed in a different order.
    if (const auto found = difference(first_.logs, both.logs, varying_, "log_history", 1e-6))
      report(apart, fmt::format("two in one trainer: {}", *found));
  }

  void try_ends() {
    report_breaches(first_, "in an undisturbed training");
    {
      auto performance = perform({});
      for (const auto& breach : performance.evaluate())
        report(ends, fmt::format("an evaluation and a prediction before any training: {}", breach));
      report_breaches(performance.train(), "a training after an evaluation");
      for (const auto& breach : performance.evaluate())
        report(ends, fmt::format("an evaluation and a prediction after a training: {}", breach));
      train_again(performance, "a whole training");
    }
    for (const auto& disturbance : disturbances()) try_disturbed(disturbance);
  }

  void try_disturbed(const Disturbance& disturbance) {
    auto performance = perform({.saves = disturbance.event == "Save"});
    auto run = performance.train(disturbance);
    if (!any(run.disturbed)) return;  // the training stopped earlier
    const auto where = "after " + disturbance.words();
    const bool ends_all = are_several() && disturbance.way == Disturbance::Way::throws;
    if (ends_all) run.error.clear();  // it may report another process's exception
    report_breaches(run, where);
    if (ends_all) return;
    if (disturbance.way == Disturbance::Way::throws && run.error.empty() && !run.came_out)
      report(ends, fmt::format("{}: the exception didn't come out of train()", where));
    if (run.moments.back().modes != first_.moments.back().modes)
      report(ends,
             fmt::format("{}: the model's modes differ from those after a training without that", where));
    train_again(performance, disturbance.words());
  }

  void train_again(Performance& performance, const std::string& after) {
    const auto run = performance.train();
    const auto where = fmt::format("another train() after {}", after);
    report_breaches(run, where);
    if (!run.breaches.empty() || !run.error.empty() || !is_repeatable_) return;
    if (const auto found = difference(first_, run, varying_, !options_.keeps_state_between_runs))
      report(ends, fmt::format("{} differs from the first: {}", where, *found));
  }

  static std::vector<Disturbance> disturbances() {
    using Way = Disturbance::Way;
    std::vector<Disturbance> result;
    for (const auto event :
         {"the model's forward in a training step", "the model's forward in an evaluation"})
      result.push_back({.way = Way::throws, .event = event, .nth = 3});
    for (const auto event : {"TrainBegin", "EpochBegin", "StepBegin", "StepEnd", "EvaluateBegin",
                             "PredictionStep", "EvaluateEnd", "EpochEnd", "TrainEnd"})
      for (const bool before : {true, false})
        result.push_back({.way = Way::throws, .event = event, .before = before});
    for (const auto event : {"BatchFetched", "BackwardBegin", "OptimizerStep", "Log", "Save", "Evaluate"})
      result.push_back({.way = Way::throws, .event = event, .before = false, .nth = 2});
    for (const auto event : {"TrainBegin", "EpochBegin", "StepBegin", "SubstepEnd", "StepEnd",
                             "EvaluateBegin", "PredictionStep", "EvaluateEnd", "EpochEnd"})
      result.push_back({.way = Way::throws_stop, .event = event, .before = event[0] != 'E'});
    for (const auto event : {"TrainBegin", "SubstepEnd", "StepEnd", "Evaluate"})
      result.push_back({.way = Way::asks_to_stop, .event = event, .before = true});
    return result;
  }

  void try_resuming() {
    const auto whole = perform({.saves = true, .keep = keep("whole")}).train();
    report_breaches(whole, "in a training that writes checkpoints");
    if (any(!is_repeatable_)) return;
    for (const auto& [step, checkpoint] : whole.kept) {
      if (step >= whole.moments.back().step) continue;
      auto performance = Performance(
          trial_, options_, {.folder = checkpoint.parent_path(), .saves = true, .resume = checkpoint});
      const auto run = performance.train();
      const auto where = fmt::format("resumed at step {}", step);
      for (const auto& breach : run.breaches) report(resumes, fmt::format("{}: {}", where, breach));
      if (run.breaches.empty() && !run.error.empty())
        report(resumes, fmt::format("{}: it ends with: {}", where, run.error));
      else if (const auto found = difference(whole, run, varying_, true, true))
        report(resumes, fmt::format("{}: {}", where, *found));
    }
  }

  std::filesystem::path keep(const std::string& name) {
    const auto folder = root_ / ("kept-" + name);
    std::filesystem::create_directories(folder);
    return folder;
  }

  const Trial& trial_;
  const Options& options_;
  Varying varying_;
  bool only_reads_;
  std::shared_ptr<Communicator> communicator_ = DistributedDataParallel::join({});
  TemporaryFolder folder_;
  std::filesystem::path root_ = communicator_->gather_bytes(folder_.path().string()).front();
  int performances_ = 0;
  bool is_repeatable_ = true;  // two identical runs gave equal results
  bool only_read_ = true;      // as far as was observed
  Run first_;
  std::vector<std::string> lines_;
};

}  // namespace

std::vector<std::string> broken_laws(const Trial& trial, const Options& options) {
  return Trials(trial, options).run();
}

}  // namespace etude::inline v0::laws::detail
