#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "etude/report/page_text.hpp"
#include "etude/study/trial.hpp"

/// Trials in words. A study is a file that anybody may have written, so these take any text and any number.
namespace etude::inline v0::detail {

std::string_view state_text(TrialState state);

/// The value of a hyperparameter, not yet plain; empty if the trial doesn't have it.
std::string param_text(const FrozenTrial& trial, const std::string& name, int digits = 6);

/// Whether any trial chooses it among texts or the like.
bool has_choices(const std::vector<FrozenTrial>& trials, const std::string& name);

/// The value for an objective, or of a pruned trial the last that it reported.
std::optional<double> value_of(const FrozenTrial& trial, std::size_t objective);

/// Seconds from its start to its end.
std::optional<double> duration_of(const FrozenTrial& trial);

/// The places of the best complete trials, by number: one, or those on the Pareto front of several
/// objectives.
std::vector<std::size_t> best_of(const std::vector<FrozenTrial>& trials,
                                 const std::vector<StudyDirection>& directions);

/// The places of all trials as a reader wants them: complete ones, the best first and all of `best` before
/// the others, then pruned, running, waiting and failed ones by number.
std::vector<std::size_t> best_first(const std::vector<FrozenTrial>& trials,
                                    const std::vector<StudyDirection>& directions,
                                    const std::vector<std::size_t>& best);

/// "60 trials: 38 complete, 17 pruned, 5 failed".
std::string counts_text(const std::vector<FrozenTrial>& trials);

/// All hyperparameters, the most important for the first objective first.
std::vector<std::string> names_by_importance(const std::vector<FrozenTrial>& trials,
                                             const std::map<std::string, double>& importances);

}  // namespace etude::inline v0::detail
