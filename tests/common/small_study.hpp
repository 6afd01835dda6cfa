#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "etude/study/distribution.hpp"
#include "etude/study/trial.hpp"

namespace toy {

/// A trial of a study with the hyperparameters lr, layers and optim, as far as `params` has them.
inline etude::FrozenTrial trial_of(std::int64_t number, etude::TrialState state, std::vector<double> values,
                                   std::map<std::string, double> params = {}) {
  etude::FrozenTrial trial{
      .number = number, .state = state, .values = std::move(values), .params = std::move(params)};
  for (const auto& [name, value] : trial.params) {
    if (name == "lr") trial.distributions[name] = etude::FloatRange{.low = 1e-5, .high = 1e-1, .log = true};
    if (name == "layers") trial.distributions[name] = etude::IntRange{.low = 1, .high = 4};
    if (name == "optim") trial.distributions[name] = etude::Choices{{"sgd", "adamw", nullptr, 0.5}};
  }
  return trial;
}

/// Five trials in different states, two of them with reported values.
inline std::vector<etude::FrozenTrial> small_study() {
  std::vector trials{
      trial_of(0, etude::TrialState::complete, {0.5}, {{"lr", 2.39169e-05}, {"layers", 3}, {"optim", 1}}),
      trial_of(1, etude::TrialState::pruned, {0.75}, {{"lr", 0.01}, {"layers", 2}, {"optim", 2}}),
      trial_of(2, etude::TrialState::complete, {0.25}, {{"lr", 0.001}, {"optim", 0}}),
      trial_of(3, etude::TrialState::fail, {}, {{"lr", 0.1}, {"layers", 1}, {"optim", 3}}),
      trial_of(4, etude::TrialState::running, {})};
  trials[0].datetime_start = 1709209805;  // 2024-02-29 12:30:05
  trials[0].datetime_complete = 1709209805 + 3725;
  trials[1].intermediate_values = {{1, 0.9}, {2, 0.75}};
  trials[2].intermediate_values = {{1, 0.8}, {2, 0.5}, {3, 0.25}};
  return trials;
}

/// Trials with numbers that aren't finite or are huge, and one with a hyperparameter that has no
/// distribution.
inline std::vector<etude::FrozenTrial> odd_study() {
  constexpr double infinity = std::numeric_limits<double>::infinity(),
                   nan = std::numeric_limits<double>::quiet_NaN(),
                   largest = std::numeric_limits<double>::max();
  using etude::TrialState;
  std::vector trials{trial_of(0, TrialState::complete, {infinity}, {{"lr", 1e-5}}),
                     trial_of(1, TrialState::complete, {-infinity}, {{"lr", nan}}),
                     trial_of(2, TrialState::complete, {largest}, {{"lr", infinity}}),
                     trial_of(3, TrialState::complete, {-largest}, {{"lr", -largest}, {"layers", largest}}),
                     trial_of(4, TrialState::complete, {nan}, {{"optim", nan}}),
                     trial_of(5, TrialState::complete, {0}, {{"optim", 17}, {"layers", -largest}}),
                     trial_of(6, TrialState::complete, {}, {{"without a distribution", largest}}),
                     trial_of(7, TrialState::pruned, {1, 2, 3}, {{"wide", largest}})};
  trials[7].distributions["wide"] = etude::FloatRange{.low = -largest, .high = largest};
  trials[3].intermediate_values = {{std::numeric_limits<std::int64_t>::min(), largest},
                                   {std::numeric_limits<std::int64_t>::max(), -largest}};
  trials[5].intermediate_values = {{0, nan}, {1, infinity}};
  for (auto& trial : trials) trial.datetime_start = -largest, trial.datetime_complete = largest;
  trials[0].datetime_start = nan;
  return trials;
}

}  // namespace toy
