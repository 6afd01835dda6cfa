#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "etude/base/linkage.hpp"
#include "etude/study/distribution.hpp"

namespace etude::inline v0 {

/// The states of a trial, with Optuna's numbers.
enum class TrialState { running = 0, complete = 1, pruned = 2, fail = 3, waiting = 4 };

/// Whether a smaller or a larger value of an objective is better, with Optuna's numbers.
enum class StudyDirection { minimize = 1, maximize = 2 };

/// A trial as a study keeps it; Optuna's class of the same name.
struct FrozenTrial {
  std::int64_t number = 0;  ///< in its study, from 0
  TrialState state = TrialState::running;
  std::vector<double> values = {};                          ///< one per objective if it is complete
  std::map<std::string, double> params = {};                ///< as `to_number` gives them
  std::map<std::string, Distribution> distributions = {};   ///< of the params
  std::map<std::int64_t, double> intermediate_values = {};  ///< by step
  nlohmann::ordered_json user_attrs = nlohmann::ordered_json::object();
  nlohmann::ordered_json system_attrs = nlohmann::ordered_json::object();
  /// When it began and ended, in seconds since 1970 in UTC, if that is known.
  std::optional<double> datetime_start = {}, datetime_complete = {};

  /// Whether it is complete, pruned or failed.
  bool is_finished() const { return state != TrialState::running && state != TrialState::waiting; }
  /// The value of a hyperparameter. Throws ArgumentError for one that it doesn't have.
  nlohmann::ordered_json param(const std::string& name) const;
};

/// The distributions that all trials that are complete or pruned have in common, except those with a single
/// value; empty without such a trial.
std::map<std::string, Distribution> intersection_search_space(const std::vector<FrozenTrial>& trials);

}  // namespace etude::inline v0

#ifndef ETUDE_COMPILED
#include "etude/study/impl/trial.ipp"
#endif
