#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "etude/study/trial.hpp"

namespace etude::inline v0 {

/// Decides whether a trial should stop early, after it has reported a value.
class Pruner {
 public:
  struct Verdict {
    bool prune = false;
    /// Numbers to save in the trial's `system_attrs`, for later decisions about other trials.
    std::map<std::string, double> notes = {};
  };

  virtual ~Pruner() = default;

  /// `trials` are all trials of the study. The trial has reported at least one value.
  virtual Verdict judge(const std::vector<FrozenTrial>& trials, const FrozenTrial& trial,
                        StudyDirection direction) const = 0;
};

/// Prunes a trial whose best value so far is worse than the `percentile` of the values that complete trials
/// had reported at the same step, as Optuna's class of the same name does; 50 is the median.
class PercentilePruner : public Pruner {
 public:
  struct Options {
    double percentile = 50;             ///< from 0 to 100: the share of trials that is kept
    std::int64_t n_startup_trials = 5;  ///< complete trials needed before any is pruned
    std::int64_t n_warmup_steps = 0;    ///< steps before any trial is pruned
    std::int64_t interval_steps = 1;    ///< between two decisions
    std::int64_t n_min_trials = 1;      ///< complete trials needed that have reported at the step
  };

  /// Throws ArgumentError for an option outside its range.
  explicit PercentilePruner(const Options& options);

  Verdict judge(const std::vector<FrozenTrial>& trials, const FrozenTrial& trial,
                StudyDirection direction) const override;

 private:
  Options options_;
};

/// A PercentilePruner at the median.
class MedianPruner : public PercentilePruner {
 public:
  MedianPruner() : PercentilePruner(Options()) {}
  explicit MedianPruner(std::int64_t n_startup_trials, std::int64_t n_warmup_steps = 0,
                        std::int64_t interval_steps = 1)
      : PercentilePruner({.n_startup_trials = n_startup_trials,
                          .n_warmup_steps = n_warmup_steps,
                          .interval_steps = interval_steps}) {}
};

/// Asynchronous successive halving (Li et al. 2020, "A System for Massively Parallel Hyperparameter Tuning"),
/// as Optuna's class of the same name does it: at the steps `min_resource` * `reduction_factor`^k, k = 0, 1,
/// ..., only the best of every `reduction_factor` trials that reached the step continue.
class SuccessiveHalvingPruner : public Pruner {
 public:
  struct Options {
    /// The first step at which trials are compared; by default a hundredth of the last step that any complete
    /// trial has reported, at least 1.
    std::optional<std::int64_t> min_resource = {};
    std::int64_t reduction_factor = 4;
    std::int64_t min_early_stopping_rate = 0;  ///< added to k
  };

  /// Throws ArgumentError for an option outside its range.
  explicit SuccessiveHalvingPruner(const Options& options);
  SuccessiveHalvingPruner() : SuccessiveHalvingPruner(Options()) {}

  Verdict judge(const std::vector<FrozenTrial>& trials, const FrozenTrial& trial,
                StudyDirection direction) const override;

 private:
  Options options_;
};

}  // namespace etude::inline v0
