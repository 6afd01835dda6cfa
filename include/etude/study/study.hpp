#pragma once

#ifndef ETUDE_STUDY
#error "etude/study/study.hpp needs a library: link etude::study"
#endif

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "etude/study/pruners.hpp"
#include "etude/study/random_numbers.hpp"
#include "etude/study/samplers.hpp"
#include "etude/study/trial.hpp"

namespace etude::inline v0 {

class Study;

namespace detail {
class LockFile;

/// The system attribute that marks a trial as pruned before its result is recorded.
inline constexpr const char* pruned_attr = "etude:pruned";
}  // namespace detail

/// A trial of a Study.
class StudyTrial final : public Trial {
 public:
  std::int64_t number() const override { return number_; }
  nlohmann::ordered_json suggest(const std::string& name, const Distribution& distribution) override;
  void report(double value, std::int64_t step) override;
  bool should_prune() override;
  void set_user_attr(const std::string& name, const nlohmann::ordered_json& value) override;
  FrozenTrial frozen() const override;

  /// Sets an attribute that is for programs in the study; trackers and dashboards don't show it.
  void set_system_attr(const std::string& name, const nlohmann::ordered_json& value);

  /// From now on, keeps suggestions and attributes in memory until `record` writes all of them at once or
  /// `discard` drops them. Of a trial that is given up before then, the journal holds only the beginning.
  void defer();
  void record();
  void discard();

  /// True if `claim` returned a trial that another process had begun.
  bool is_continued() const { return is_continued_; }
  /// The descriptor of the trial's lock, which counts as held as long as any process has it open; -1 without
  /// a journal, or if the file system has no locks.
  int lock_descriptor() const;

 private:
  friend class Study;
  StudyTrial(Study& study, std::size_t id, std::int64_t number, std::shared_ptr<detail::LockFile> lock = {},
             bool is_continued = false)
      : study_(&study), id_(id), number_(number), lock_(std::move(lock)), is_continued_(is_continued) {}

  Study* study_;
  std::size_t id_;  // in the journal
  std::int64_t number_;
  std::shared_ptr<detail::LockFile> lock_;
  bool is_continued_;
  // Set from the first suggestion on.
  std::optional<RandomNumbers> random_ = {};
  std::vector<FrozenTrial> others_ = {};
  std::map<std::string, double> relative_ = {};
};

/// Optimises an objective over trials, as Optuna's Study with its ask-and-tell interface. With a journal, the
/// study is a file in the format of Optuna's JournalStorage, which Optuna and its dashboard can also read and
/// write: several processes can take part, and a study can be continued later.
///
///     etude::Study study({.journal = "study.log", .seed = 1});
///     for (int i = 0; i < 100; ++i) {
///       auto trial = study.ask();
///       const double x = trial.suggest_float("x", {.low = -10, .high = 10});
///       study.tell(trial, x * x);
///     }
///     study.best_trial()->param("x");
///
/// Not thread-safe: use one object per thread.
class Study {
 public:
  struct Options {
    std::string study_name = "etude";
    std::vector<StudyDirection> directions = {StudyDirection::minimize};  ///< one per objective
    std::filesystem::path journal = {};                                   ///< empty: in memory
    std::shared_ptr<const Sampler> sampler = {};                          ///< a TPESampler by default
    std::shared_ptr<const Pruner> pruner = {};                            ///< none by default
    /// The sampled values depend only on the seed, the trial's number and the trials that are finished at
    /// that time.
    std::uint64_t seed = 0;
  };

  /// Throws CheckpointError for a journal that can't be read, and ArgumentError if it has a study of this
  /// name with different directions.
  explicit Study(Options options);
  Study(const Study&) = delete;
  Study& operator=(const Study&) = delete;
  ~Study();

  using Params = std::map<std::string, nlohmann::ordered_json>;

  /// Queues a trial with these values; hyperparameters that aren't named are sampled.
  void enqueue_trial(const Params& params) { enqueue({params}, false); }
  /// Queues several trials, unless the study already has any.
  void enqueue_first(const std::vector<Params>& trials) { enqueue(trials, true); }

  /// Returns a trial to run: the next one in the queue, or a new one.
  StudyTrial ask();

  /// Returns a trial to run in a study of `n_trials` that several processes share through its journal: a
  /// trial whose process ended without a result, the next one in the queue, or a new one; none once
  /// `n_trials` have begun. No other process gets the trial until this process ends or destroys it without a
  /// result. The operating system holds the lock, so removing its file after a crash loses nothing. Throws
  /// DiskFullError if there is no room for the journal or the lock.
  std::optional<StudyTrial> claim(std::int64_t n_trials);
  /// True if other processes run trials that `claim` would return if those processes ended.
  bool others_run();
  /// Returns a trial that another process has claimed for this one. Throws ArgumentError if it isn't running.
  StudyTrial running_trial(std::int64_t number, bool is_continued = false);

  /// Records that the trials' files are in this folder, both in the folder and in the journal. Throws
  /// ArgumentError if they are in a different folder, or if the folder belongs to a different study.
  void set_folder(const std::filesystem::path& folder);

  /// Records the result of a trial. A NaN makes it a failed trial. Throws ArgumentError if the number of
  /// values isn't the number of objectives, and for a trial that is already finished.
  void tell(const StudyTrial& trial, double value) { tell(trial, std::vector<double>{value}); }
  void tell(const StudyTrial& trial, const std::vector<double>& values);
  /// Ends the trial as pruned or failed.
  void tell(const StudyTrial& trial, TrialState state);

  /// All trials by number, including those of other processes.
  std::vector<FrozenTrial> trials();
  /// The best complete trial; unset without one, and with several objectives.
  std::optional<FrozenTrial> best_trial();
  /// The complete trials that no other trial beats in all objectives.
  std::vector<FrozenTrial> best_trials() { return etude::best_trials(trials(), options_.directions); }

 private:
  friend class StudyTrial;
  struct Storage;

  std::filesystem::path lock_path(std::int64_t number) const;
  /// Takes a trial's lock, which must happen before a record shows the trial as running; null if another
  /// process has it.
  std::shared_ptr<detail::LockFile> lock_of(std::int64_t number, bool is_continued) const;
  /// The trial with its lock; none if another process has the lock or the trial has ended.
  std::optional<StudyTrial> hold(std::size_t id, bool is_continued, std::shared_ptr<detail::LockFile> lock);
  void enqueue(const std::vector<Params>& trials, bool only_first);
  /// The id of the trial that this process has just created.
  std::size_t created() const;
  void remove_locks();
  /// True if this worker, and no other, got the trial.
  bool take_from_queue(std::size_t id, const std::string& worker);
  StudyDirection direction() const { return options_.directions[0]; }
  const std::vector<FrozenTrial>& known();
  const FrozenTrial& frozen(const StudyTrial& trial);
  void finish(const StudyTrial& trial, TrialState state, const std::vector<double>& values);

  Options options_;
  std::unique_ptr<Storage> storage_;
};

}  // namespace etude::inline v0
