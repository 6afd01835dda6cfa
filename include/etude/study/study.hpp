#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "etude/base/linkage.hpp"
#include "etude/study/pruners.hpp"
#include "etude/study/samplers.hpp"
#include "etude/study/trial.hpp"

namespace etude::inline v0 {

class Study;

/// A trial under way: asks for the values of its hyperparameters and reports how it goes.
class Trial {
 public:
  std::int64_t number() const { return number_; }

  /// The value of a hyperparameter, the same at each call. Throws ArgumentError for a distribution that isn't
  /// valid, or of another kind than in earlier trials.
  nlohmann::ordered_json suggest(const std::string& name, const Distribution& distribution);
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

  /// The objective's value at a step, for the pruner. The first report of a step counts.
  void report(double value, std::int64_t step);
  /// Whether the trial isn't worth going on, by its last report.
  bool should_prune();

  void set_user_attr(const std::string& name, const nlohmann::ordered_json& value);

  /// The values so far.
  std::map<std::string, nlohmann::ordered_json> params() const;

 private:
  friend class Study;
  Trial(Study& study, std::size_t id, std::int64_t number) : study_(&study), id_(id), number_(number) {}

  Study* study_;
  std::size_t id_;  // in the journal
  std::int64_t number_;
  // From the first suggestion on.
  std::optional<RandomNumbers> random_ = {};
  std::vector<FrozenTrial> others_ = {};
  std::map<std::string, double> relative_ = {};
};

/// Trials of an objective, as Optuna's Study with its ask-and-tell interface. With a journal, the study is a
/// file in the format of Optuna's JournalStorage, which Optuna and its dashboard read and write too: several
/// processes can take part, and a study goes on where it was left.
///
///     etude::Study study({.journal = "study.log", .seed = 1});
///     for (int i = 0; i < 100; ++i) {
///       auto trial = study.ask();
///       const double x = trial.suggest_float("x", {.low = -10, .high = 10});
///       study.tell(trial, x * x);
///     }
///     study.best_trial()->param("x");
///
/// One object is for one thread.
class Study {
 public:
  struct Options {
    std::string study_name = "etude";
    std::vector<StudyDirection> directions = {StudyDirection::minimize};  ///< one per objective
    std::filesystem::path journal = {};                                   ///< empty: in memory
    std::shared_ptr<const Sampler> sampler = {};                          ///< a TPESampler by default
    std::shared_ptr<const Pruner> pruner = {};                            ///< none by default
    /// The values of a trial depend on it, the trial's number and the trials that are finished then.
    std::uint64_t seed = 0;
  };

  /// Throws CheckpointError for a journal that can't be read, and ArgumentError for a study of this name with
  /// other directions.
  explicit Study(Options options);
  Study(const Study&) = delete;
  Study& operator=(const Study&) = delete;
  ~Study();

  /// Puts a trial with these values in the queue; hyperparameters that it doesn't name are sampled.
  void enqueue_trial(const std::map<std::string, nlohmann::ordered_json>& params);

  /// A trial to run: the next one in the queue, or a new one.
  Trial ask();

  /// The result of a trial. A value that isn't a number makes it a failed trial. Throws ArgumentError for
  /// another number of values than objectives, and for a trial that is finished.
  void tell(const Trial& trial, double value) { tell(trial, std::vector<double>{value}); }
  void tell(const Trial& trial, const std::vector<double>& values);
  /// Ends it as pruned or failed.
  void tell(const Trial& trial, TrialState state);

  /// All trials by number, those of other processes included.
  std::vector<FrozenTrial> trials();
  /// The best complete trial; none yet, or several objectives: nothing.
  std::optional<FrozenTrial> best_trial();
  /// The complete trials that no other is better than in all objectives.
  std::vector<FrozenTrial> best_trials();

 private:
  friend class Trial;
  struct Storage;

  StudyDirection direction() const { return options_.directions[0]; }
  const std::vector<FrozenTrial>& known();
  const FrozenTrial& frozen(const Trial& trial);
  void finish(const Trial& trial, TrialState state, const std::vector<double>& values);

  Options options_;
  std::unique_ptr<Storage> storage_;
};

}  // namespace etude::inline v0

#ifndef ETUDE_COMPILED
#include "etude/study/impl/study.ipp"
#endif
