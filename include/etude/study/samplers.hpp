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

/// Chooses the values of a new trial. Samplers are stateless: a draw depends only on the study's trials and
/// on `random`, which is reseeded for each trial, and for each hyperparameter that is sampled alone. So a
/// search that was killed continues as if it hadn't been.
class Sampler {
 public:
  /// The input of a sampler.
  struct Known {
    const std::vector<FrozenTrial>& trials;  ///< all other trials
    StudyDirection direction;                ///< of the first objective
    std::int64_t number;                     ///< of the new trial
    RandomNumbers& random;
  };

  virtual ~Sampler() = default;

  /// Values that are chosen together, for hyperparameters known before the trial asks for them.
  virtual std::map<std::string, double> sample_relative(const Known&) const { return {}; }

  /// The value of any other hyperparameter.
  virtual double sample_independent(const Known& known, const std::string& name,
                                    const Distribution& distribution) const = 0;

  /// The number of trials after which nothing new is left to try.
  virtual std::optional<std::int64_t> most_trials() const { return {}; }
};

/// Samples uniformly in each range, independently of earlier trials.
class RandomSampler : public Sampler {
 public:
  double sample_independent(const Known& known, const std::string& name,
                            const Distribution& distribution) const override;
};

/// Tries each combination of the given values once; the last hyperparameter varies fastest:
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
/// numbers of Joe and Kuo (2008), shifted by `seed`. Covers the hyperparameters that all earlier trials have;
/// all others are random.
class QMCSampler : public RandomSampler {
 public:
  explicit QMCSampler(std::uint64_t seed = 0) : seed_(seed) {}

  std::map<std::string, double> sample_relative(const Known& known) const override;

 private:
  std::uint64_t seed_;
};

/// The tree-structured Parzen estimator of Bergstra et al. (2011, "Algorithms for Hyper-Parameter
/// Optimization"), like Optuna's TPESampler, but for all hyperparameters at once: draws candidates from the
/// density of the best tenth of the trials, and takes the one with the largest ratio of that density to the
/// density of the other trials. The first trials are random.
class TPESampler : public Sampler {
 public:
  struct Options {
    std::int64_t n_startup_trials = 10;  ///< finished trials needed before it starts
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
