#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "etude/reflect/enum.hpp"
#include "etude/study/distribution.hpp"

namespace etude::inline v0 {

/// The states of a trial, with Optuna's numbers.
ETUDE_ENUM(TrialState, running, complete, pruned, fail, waiting);

/// Whether a smaller or a larger value of an objective is better, with Optuna's numbers.
ETUDE_ENUM(StudyDirection, not_set, minimize, maximize);

/// A trial as a study keeps it, like Optuna's class of the same name.
struct FrozenTrial {
  std::int64_t number = 0;  ///< in its study, from 0
  TrialState state = TrialState::running;
  std::vector<double> values = {};                          ///< one per objective if it is complete
  std::map<std::string, double> params = {};                ///< values by name, converted by `to_number`
  std::map<std::string, Distribution> distributions = {};   ///< of the params
  std::map<std::int64_t, double> intermediate_values = {};  ///< by step
  nlohmann::ordered_json user_attrs = nlohmann::ordered_json::object();
  nlohmann::ordered_json system_attrs = nlohmann::ordered_json::object();
  /// Start and end in seconds since 1970 in UTC, if known.
  std::optional<double> datetime_start = {}, datetime_complete = {};

  /// True if the trial is complete, pruned or failed.
  bool is_finished() const { return state != TrialState::running && state != TrialState::waiting; }
  /// The value of a hyperparameter. Throws ArgumentError if the trial doesn't have it.
  nlohmann::ordered_json param(const std::string& name) const;
};

/// A running trial: asks for its hyperparameters' values and reports the objective's.
class Trial {
 public:
  virtual ~Trial() = default;

  /// Its number in the study, from 0.
  virtual std::int64_t number() const = 0;

  /// The value of a hyperparameter, the same at each call. Throws ArgumentError for an invalid distribution,
  /// or for one whose kind differs from earlier trials.
  virtual nlohmann::ordered_json suggest(const std::string& name, const Distribution& distribution) = 0;
  double suggest_float(const std::string& name, const FloatRange& range) {
    return suggest(name, range).get<double>();
  }
  std::int64_t suggest_int(const std::string& name, const IntRange& range) {
    return suggest(name, range).get<std::int64_t>();
  }
  template <class T = std::string>
  T suggest_categorical(const std::string& name, const std::vector<T>& choices) {
    return suggest(name, Choices{{choices.begin(), choices.end()}}).template get<T>();
  }

  /// Reports the objective's value at a step to the pruner. Only the first report for a step counts.
  virtual void report(double value, std::int64_t step) = 0;
  /// True if the pruner would stop the trial, judging by its last report.
  virtual bool should_prune() = 0;

  virtual void set_user_attr(const std::string& name, const nlohmann::ordered_json& value) = 0;

  /// The trial's current record in the study.
  virtual FrozenTrial frozen() const = 0;

  /// The values so far.
  std::map<std::string, nlohmann::ordered_json> params() const;
};

/// The complete trials that no other trial beats in all objectives.
std::vector<FrozenTrial> best_trials(const std::vector<FrozenTrial>& trials,
                                     const std::vector<StudyDirection>& directions);

/// The distributions that all complete and pruned trials have in common, except those with a single value;
/// empty if there are no such trials.
std::map<std::string, Distribution> intersection_search_space(const std::vector<FrozenTrial>& trials);

}  // namespace etude::inline v0
