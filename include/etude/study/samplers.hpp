#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "etude/study/parzen_estimator.hpp"
#include "etude/study/random_numbers.hpp"
#include "etude/study/trial.hpp"

namespace etude::inline v0 {

/// Chooses the values of a new trial. A sampler has no state of its own: what it draws depends on the
/// study's trials and on `random`, which starts anew for each trial, and for each hyperparameter that is
/// sampled alone, so that a search that was killed goes on as it would have.
class Sampler {
 public:
  /// The input of a sampler.
  struct Known {
    const std::vector<FrozenTrial>& trials;  ///< all others
    StudyDirection direction;                ///< of the first objective
    std::int64_t number;                     ///< of the new trial
    RandomNumbers& random;
  };

  virtual ~Sampler() = default;

  /// Values that are chosen together, of hyperparameters that are known before the trial asks for them.
  virtual std::map<std::string, double> sample_relative(const Known&) const { return {}; }

  /// The value of any other hyperparameter.
  virtual double sample_independent(const Known& known, const std::string& name,
                                    const Distribution& distribution) const = 0;

  /// The number of trials that have something new to try.
  virtual std::optional<std::int64_t> most_trials() const { return {}; }
};

/// Uniform in each range, independent of what was tried.
class RandomSampler : public Sampler {
 public:
  double sample_independent(const Known& known, const std::string& name,
                            const Distribution& distribution) const override;
};

/// Each combination of some values once, the last hyperparameter's fastest:
/// `GridSampler{{"learning_rate", {1e-3, 1e-4}}, {"optim", {"sgd", "adamw_torch"}}}`.
class GridSampler : public Sampler {
 public:
  struct Values {
    std::string name;
    std::vector<nlohmann::ordered_json> values;
  };

  /// Throws ArgumentError for a hyperparameter without values.
  explicit GridSampler(std::vector<Values> values);
  GridSampler(std::initializer_list<Values> values) : GridSampler(std::vector(values)) {}

  /// Throws ArgumentError for a hyperparameter that isn't in the grid, or a value that doesn't fit.
  double sample_independent(const Known& known, const std::string& name,
                            const Distribution& distribution) const override;
  std::optional<std::int64_t> most_trials() const override;

 private:
  std::vector<Values> values_;
};

/// A quasi-random sequence, which fills the space more evenly than random numbers: Sobol's with the direction
/// numbers of Joe and Kuo (2008), shifted by `seed`. The hyperparameters are those that all trials so far
/// have; the others are random.
class QMCSampler : public Sampler {
 public:
  explicit QMCSampler(std::uint64_t seed = 0) : seed_(seed) {}

  std::map<std::string, double> sample_relative(const Known& known) const override;
  double sample_independent(const Known& known, const std::string& name,
                            const Distribution& distribution) const override;

 private:
  std::uint64_t seed_;
};

/// The tree-structured Parzen estimator of Bergstra et al. (2011, "Algorithms for Hyper-Parameter
/// Optimization"), for all hyperparameters at once, as Optuna's TPESampler is by default: candidates are
/// drawn from a density of the best tenth of the trials, and the one with the largest ratio of that density
/// to the density of the others is taken. The first trials are random.
class TPESampler : public Sampler {
 public:
  struct Options {
    std::int64_t n_startup_trials = 10;  ///< finished trials before it begins
    std::int64_t n_ei_candidates = 24;
  };

  explicit TPESampler(const Options& options) : options_(options) {}
  TPESampler() : TPESampler(Options()) {}

  std::map<std::string, double> sample_relative(const Known& known) const override;
  double sample_independent(const Known& known, const std::string& name,
                            const Distribution& distribution) const override;

 private:
  bool is_starting(const Known& known) const;
  std::map<std::string, double> sample(const Known& known,
                                       const std::map<std::string, Distribution>& space) const;

  Options options_;
};

}  // namespace etude::inline v0
