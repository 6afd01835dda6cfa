#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/report/page_text.hpp"
#include "etude/study/trial.hpp"

/// Formats trials as text. A study's file may come from anyone, so these functions accept any text and any
/// number.
namespace etude::inline v0::detail {

std::string_view state_text(TrialState state);

/// The value of a hyperparameter, not yet sanitised; empty if the trial doesn't have it.
std::string param_text(const FrozenTrial& trial, const std::string& name, int digits = 6);

/// True if the hyperparameter is categorical in any trial.
bool has_choices(const std::vector<FrozenTrial>& trials, const std::string& name);

/// A trial's value for an objective; for a pruned trial, the last one that it reported.
std::optional<double> value_of(const FrozenTrial& trial, std::size_t objective);

/// A trial's duration in seconds; unset if its start or end is unknown.
std::optional<double> duration_of(const FrozenTrial& trial);

/// The indices of the complete trials that no other trial beats in all objectives, ordered by number.
std::vector<std::size_t> unbeaten(const std::vector<FrozenTrial>& trials,
                                  const std::vector<StudyDirection>& directions);

/// The same, but with one objective only the first of several equal trials.
std::vector<std::size_t> best_of(const std::vector<FrozenTrial>& trials,
                                 const std::vector<StudyDirection>& directions);

/// The indices of all trials in display order: complete trials, best first and with all of `best` in front;
/// then pruned, running, waiting and failed ones by number.
std::vector<std::size_t> best_first(const std::vector<FrozenTrial>& trials,
                                    const std::vector<StudyDirection>& directions,
                                    const std::vector<std::size_t>& best);

/// The number of trials in each state that occurs, such as "pruned".
std::vector<std::pair<std::string_view, std::int64_t>> counts_of(const std::vector<FrozenTrial>& trials);

/// All hyperparameters, ordered by falling importance for the first objective.
std::vector<std::string> names_by_importance(const std::vector<FrozenTrial>& trials,
                                             const std::map<std::string, double>& importances);

}  // namespace etude::inline v0::detail
