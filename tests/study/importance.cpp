#include "etude/study/importance.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace study_importance_test {

using etude::Distribution;
using etude::FrozenTrial;
using etude::StudyDirection;
using etude::TrialState;
using Importances = std::map<std::string, double>;

const Distribution learning_rate = etude::FloatRange{.low = 1e-5, .high = 1e-1, .log = true};
const std::map<std::string, Distribution> space{
    {"lr", learning_rate},
    {"momentum", etude::FloatRange{.low = 0, .high = 1}},
    {"dropout", etude::FloatRange{.low = 0, .high = 0.9, .step = 0.1}},
    {"ragged", etude::FloatRange{.low = 0, .high = 1, .step = 0.3}},  // ends at 0.9
    {"layers", etude::IntRange{.low = 1, .high = 8}},
    {"hidden", etude::IntRange{.low = 16, .high = 512, .log = true}},
    {"batch", etude::IntRange{.low = 8, .high = 200, .step = 8}},
    {"optim", etude::Choices{{"sgd", "adamw", "lion"}}},
    {"nesterov", etude::Choices{{false, true}}},  // only with sgd
};

/// A pseudorandom number in [0, 1), by simple arithmetic that Python can repeat.
double u(int i, int k) { return ((i * 7919 + k * 104729 + i * i * (k + 3)) % 1009) / 1009.0; }

FrozenTrial trial_of(std::map<std::string, double> params, double value) {
  FrozenTrial trial{.state = TrialState::complete, .values = {value}, .params = std::move(params)};
  for (const auto& [name, number] : trial.params)
    if (const auto found = space.find(name); found != space.end()) trial.distributions.insert(*found);
  return trial;
}

std::vector<FrozenTrial> trials_of(int count) {
  std::vector<FrozenTrial> trials;
  for (int i = 0; i < count; ++i) {
    std::map<std::string, double> p{{"lr", 1e-5 + std::pow(u(i, 1), 4) * (1e-1 - 1e-5)},
                                    {"momentum", u(i, 2)},
                                    {"dropout", std::floor(u(i, 3) * 10) * 0.1},
                                    {"ragged", std::floor(u(i, 4) * 4) * 0.3},
                                    {"layers", 1 + std::floor(u(i, 5) * 8)},
                                    {"hidden", 16 + std::floor(std::pow(u(i, 6), 2) * 497)},
                                    {"batch", 8 * (1 + std::floor(u(i, 7) * 25))},
                                    {"optim", std::floor(u(i, 8) * 3)}};
    if (p["optim"] == 0) p["nesterov"] = u(i, 9) < 0.5 ? 1 : 0;
    double value = std::abs(p["lr"] - 0.01) * 30 + std::pow(p["momentum"] - 0.7, 2) + p["dropout"] * 0.3 +
                   std::abs(p["layers"] - 3) * 0.2 + p["hidden"] / 2000 + (p["optim"] == 1 ? 0 : 0.2);
    if (p.contains("nesterov")) value += p["nesterov"] == 1 ? 0 : 0.3;
    trials.push_back(trial_of(p, i == 5 ? std::numeric_limits<double>::infinity() : value));
  }
  trials.push_back(trial_of({{"lr", 0.05}}, -100));
  trials.back().state = TrialState::pruned;
  return trials;
}

double farthest(const Importances& ours, const Importances& theirs) {
  REQUIRE(ours.size() == theirs.size());
  double most = 0;
  for (const auto& [name, importance] : theirs) most = std::max(most, std::abs(ours.at(name) - importance));
  return most;
}

// The expected numbers are from optuna.importance.get_param_importances in Optuna 5.0.0.

TEST_CASE("importances are Optuna's for every kind of hyperparameter, in both directions") {
  CHECK(farthest(etude::param_importances(trials_of(200), StudyDirection::minimize),
                 {{"batch", 0.0166605944211},
                  {"dropout", 0.104431675822},
                  {"hidden", 0.0926675980207},
                  {"layers", 0.464403413354},
                  {"lr", 0.0445190718072},
                  {"momentum", 0.075808590439},
                  {"nesterov", 0.00930095321701},
                  {"optim", 0.0475352439922},
                  {"ragged", 0.144672858927}}) < 1e-10);
  CHECK(farthest(etude::param_importances(trials_of(200), StudyDirection::maximize),
                 {{"batch", 0.0190928429364},
                  {"dropout", 0.00409423861597},
                  {"hidden", 0.00839488850557},
                  {"layers", 0.0246322714859},
                  {"lr", 0.931126555587},
                  {"momentum", 0.000841739014125},
                  {"nesterov", 0.00070420912336},
                  {"optim", 0.00104785144839},
                  {"ragged", 0.0100654032837}}) < 1e-10);
}

TEST_CASE("importances are Optuna's for few trials") {
  CHECK(farthest(etude::param_importances(trials_of(15), StudyDirection::minimize),
                 {{"batch", 0.0757372322096},
                  {"dropout", 0.209984680898},
                  {"hidden", 0.0828384140589},
                  {"layers", 0.105464216159},
                  {"lr", 0.203445027564},
                  {"momentum", 0.23995051984},
                  {"nesterov", 0.0359227659439},
                  {"optim", 0.0129508104383},
                  {"ragged", 0.0337063328886}}) < 1e-10);
  CHECK(farthest(etude::param_importances(trials_of(2), StudyDirection::minimize),
                 {{"batch", 0.216330629256},
                  {"dropout", 0.0385900187051},
                  {"hidden", 0.0395458637746},
                  {"layers", 0.0366944202031},
                  {"lr", 0.24314915021},
                  {"momentum", 0.41252484014},
                  {"nesterov", 0},
                  {"optim", 0.00620000551152},
                  {"ragged", 0.00696507220014}}) < 1e-10);
}

TEST_CASE("importances are Optuna's where a range differs between trials, and where it has a single value") {
  std::vector<FrozenTrial> trials;
  for (int i = 0; i < 60; ++i) {
    // Only one trial has its range, so it says nothing, although it is among the best.
    const double high = i == 10 ? 3 : i % 2 == 1 ? 1 : 2, x = i == 10 ? 0.4 : u(i, 1) * high;
    trials.push_back(trial_of({{"x", x}, {"one", 3}, {"y", u(i, 2)}}, std::pow(x - 0.4, 2) + 0.01 * u(i, 2)));
    trials.back().distributions = {{"x", etude::FloatRange{.low = 0, .high = high}},
                                   {"one", etude::IntRange{.low = 3, .high = 3}},
                                   {"y", etude::FloatRange{.low = 0, .high = 1}}};
  }
  CHECK(farthest(etude::param_importances(trials, StudyDirection::minimize),
                 {{"one", 0}, {"x", 0.789610765391}, {"y", 0.210389234609}}) < 1e-10);
}

TEST_CASE("the objective that counts is the one that is asked for") {
  auto trials = trials_of(200);
  const auto alone = etude::param_importances(trials, StudyDirection::minimize);
  for (auto& trial : trials) trial.values.insert(trial.values.begin(), 0.5 - trial.values[0]);
  CHECK(farthest(etude::param_importances(trials, StudyDirection::minimize, 1), alone) < 1e-12);
  CHECK(farthest(etude::param_importances(trials, StudyDirection::maximize, 0), alone) < 1e-12);
}

TEST_CASE("importances are equal if nothing distinguishes them, and none without a complete trial") {
  CHECK(etude::param_importances({}, StudyDirection::minimize).empty());
  auto trial = trial_of({{"lr", 0.01}, {"momentum", 0.5}}, 1);
  const Importances equal{{"lr", 0.5}, {"momentum", 0.5}};
  CHECK(etude::param_importances({trial}, StudyDirection::minimize) == equal);
  CHECK(etude::param_importances({trial, trial, trial}, StudyDirection::minimize) == equal);
  trial.values = {std::numeric_limits<double>::infinity()};
  CHECK(etude::param_importances({trial, trial}, StudyDirection::minimize) == equal);
  trial.state = TrialState::fail;
  CHECK(etude::param_importances({trial}, StudyDirection::minimize).empty());
}

TEST_CASE("ranges and values that no sampler gives make no undefined behaviour") {
  const double most = std::numeric_limits<double>::max(), nan = std::numeric_limits<double>::quiet_NaN();
  const auto whole = std::numeric_limits<std::int64_t>::max();
  std::vector<FrozenTrial> trials;
  for (int i = 0; i < 20; ++i) {
    trials.push_back(
        trial_of({{"a", i % 2 == 0 ? most : -most}, {"b", i % 3 == 0 ? nan : 1e300}, {"c", nan}}, i));
    trials.back().distributions = {{"a", etude::FloatRange{.low = -most, .high = most}},
                                   {"b", etude::IntRange{.low = -whole - 1, .high = whole}},
                                   {"c", etude::Choices{{"one", "two"}}},
                                   {"without a value", learning_rate}};
  }
  double sum = 0;
  for (const auto& [name, importance] : etude::param_importances(trials, StudyDirection::minimize)) {
    CHECK(std::isfinite(importance));
    sum += importance;
  }
  CHECK(sum == doctest::Approx(1));
}

}  // namespace study_importance_test
