#include "etude/study/pruners.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <map>
#include <vector>

#include "common/fault_of.hpp"
#include "etude/base/error.hpp"

namespace study_pruners_test {

using etude::FrozenTrial;
using etude::StudyDirection;
using etude::TrialState;

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

FrozenTrial trial(std::int64_t number, std::map<std::int64_t, double> reported,
                  TrialState state = TrialState::complete) {
  return {.number = number, .state = state, .intermediate_values = std::move(reported)};
}

/// Complete trials that reported 1 to 5 at step 10.
std::vector<FrozenTrial> five() {
  std::vector<FrozenTrial> trials;
  for (int i = 0; i < 5; ++i) trials.push_back(trial(i, {{10, i + 1.0}}));
  return trials;
}

bool prunes(const etude::Pruner& pruner, std::map<std::int64_t, double> reported,
            StudyDirection direction = StudyDirection::minimize, std::vector<FrozenTrial> trials = five()) {
  auto judged = trial(static_cast<std::int64_t>(trials.size()), std::move(reported), TrialState::running);
  trials.push_back(judged);
  return pruner.judge(trials, judged, direction).prune;
}

TEST_CASE("a trial whose best value is worse than the median at its step is pruned") {
  const etude::MedianPruner pruner;
  CHECK_FALSE(prunes(pruner, {{10, 3}}));  // equal
  CHECK(prunes(pruner, {{10, 3.1}}));
  CHECK_FALSE(prunes(pruner, {{5, 2}, {10, 9}}));  // it was better before
  CHECK_FALSE(prunes(pruner, {{11, 99}}));         // no trial reported at 11
  CHECK(prunes(pruner, {{10, 2.9}}, StudyDirection::maximize));
  CHECK_FALSE(prunes(pruner, {{10, 3.1}}, StudyDirection::maximize));
  CHECK(prunes(pruner, {{10, nan}}));
}

TEST_CASE("a percentile is interpolated, and turned for maximization") {
  const etude::PercentilePruner pruner({.percentile = 10});
  CHECK_FALSE(prunes(pruner, {{10, 1.4}}));  // numpy.percentile([1, 2, 3, 4, 5], 10) is 1.4
  CHECK(prunes(pruner, {{10, 1.41}}));
  CHECK_FALSE(prunes(pruner, {{10, 4.6}}, StudyDirection::maximize));
  CHECK(prunes(pruner, {{10, 4.59}}, StudyDirection::maximize));
}

TEST_CASE("nothing is pruned before enough trials and steps, and once in an interval") {
  CHECK_FALSE(prunes(etude::MedianPruner(6), {{10, 99}}));
  CHECK_FALSE(prunes(etude::MedianPruner(0, 11), {{10, 99}}));
  CHECK(prunes(etude::MedianPruner(0, 10), {{10, 99}}));
  CHECK_FALSE(prunes(etude::MedianPruner(0, 0, 10), {{11, 99}}));
  CHECK(prunes(etude::MedianPruner(0, 0, 10), {{9, 99}, {10, 99}}));
  CHECK_FALSE(prunes(etude::MedianPruner(0, 0, 8), {{9, 99}, {10, 99}}));  // decided at 9
  CHECK_FALSE(prunes(etude::PercentilePruner({.n_min_trials = 6}), {{10, 99}}));
  CHECK_FALSE(prunes(etude::MedianPruner(0), {{10, 99}}, StudyDirection::minimize, {}));
}

TEST_CASE("successive halving lets the best of every few trials go on") {
  const etude::SuccessiveHalvingPruner pruner({.min_resource = 1, .reduction_factor = 2});
  std::vector<FrozenTrial> trials;
  // The rungs are at steps 1, 2 and 4; each trial reports its value until it is pruned.
  std::vector<std::int64_t> ends;
  for (const double value : {5.0, 4.0, 6.0, 4.5, 1.0}) {
    trials.push_back(trial(static_cast<std::int64_t>(trials.size()), {}, TrialState::running));
    auto& judged = trials.back();
    std::int64_t step = 0;
    for (bool prune = false; !prune && step < 4;) {
      judged.intermediate_values[++step] = value;
      const auto verdict = pruner.judge(trials, judged, StudyDirection::minimize);
      for (const auto& [name, note] : verdict.notes) judged.system_attrs[name] = note;
      prune = verdict.prune;
    }
    judged.state = TrialState::pruned;
    ends.push_back(step);
  }
  // 4.5 is second of four at step 1, and third of three at step 2, where one continues.
  CHECK(ends == std::vector<std::int64_t>{4, 4, 1, 2, 4});
  CHECK(trials[3].system_attrs ==
        nlohmann::ordered_json{{"completed_rung_0", 4.5}, {"completed_rung_1", 4.5}});
}

TEST_CASE("without min_resource it is a hundredth of the longest complete trial") {
  const etude::SuccessiveHalvingPruner pruner;
  std::vector<FrozenTrial> none{trial(0, {{700, 1}}, TrialState::running)};
  CHECK_FALSE(prunes(pruner, {{1000, 99}}, StudyDirection::minimize, none));
  auto longest = trial(0, {{700, 1}});
  longest.system_attrs["completed_rung_0"] = 1;
  CHECK_FALSE(prunes(pruner, {{6, 99}}, StudyDirection::minimize, {longest}));
  CHECK(prunes(pruner, {{7, 99}}, StudyDirection::minimize, {longest}));
  CHECK(prunes(pruner, {{7, nan}}, StudyDirection::minimize, {longest}));
}

TEST_CASE("options outside their range are named") {
  const auto fault = [](auto act) { return toy::fault_of<etude::ArgumentError>(act); };
  CHECK(fault([] { etude::PercentilePruner({.percentile = 101}); }) ==
        "percentile is 101: must be from 0 to 100");
  CHECK(fault([] { etude::MedianPruner{5, 0, 0}; }) == "interval_steps is 0: must be at least 1");
  CHECK(fault([] { etude::SuccessiveHalvingPruner({.reduction_factor = 1}); }) ==
        "reduction_factor is 1: must be at least 2");
}

}  // namespace study_pruners_test
