#include "etude/study/samplers.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/fault_of.hpp"
#include "etude/base/error.hpp"

namespace study_samplers_test {

using etude::Choices;
using etude::Distribution;
using etude::FloatRange;
using etude::FrozenTrial;
using etude::IntRange;
using etude::StudyDirection;
using etude::TrialState;
using Space = std::map<std::string, Distribution>;

/// Asks a trial for its values in a space.
std::map<std::string, double> sampled(const etude::Sampler& sampler, const std::vector<FrozenTrial>& trials,
                                      const Space& space, std::uint64_t seed = 0,
                                      StudyDirection direction = StudyDirection::minimize) {
  const auto number = static_cast<std::int64_t>(trials.size());
  etude::RandomNumbers random(seed * 1000 + static_cast<std::uint64_t>(number));
  const etude::Sampler::Known known{trials, direction, number, random};
  auto values = sampler.sample_relative(known);
  for (const auto& [name, distribution] : space)
    if (!values.contains(name)) values[name] = sampler.sample_independent(known, name, distribution);
  return values;
}

FrozenTrial complete(std::int64_t number, const Space& space, std::map<std::string, double> params,
                     double value) {
  return {.number = number,
          .state = TrialState::complete,
          .values = {value},
          .params = std::move(params),
          .distributions = space};
}

/// The objective's values in successive trials.
template <class Objective>
std::vector<FrozenTrial> search(const etude::Sampler& sampler, const Space& space, int count,
                                Objective objective, std::uint64_t seed = 0,
                                StudyDirection direction = StudyDirection::minimize) {
  std::vector<FrozenTrial> trials;
  for (int i = 0; i < count; ++i) {
    auto values = sampled(sampler, trials, space, seed, direction);
    const double value = objective(values);
    trials.push_back(complete(i, space, std::move(values), value));
  }
  return trials;
}

TEST_CASE("random values are uniform in their range, its logarithm or its steps") {
  const Space space{{"log", FloatRange{.low = 1e-4, .high = 1, .log = true}},
                    {"n", IntRange{.low = 1, .high = 8, .step = 3}},
                    {"steps", FloatRange{.low = 0, .high = 1, .step = 0.3}},
                    {"x", FloatRange{-1, 3}},
                    {"y", Choices{{"a", "b"}}}};
  std::map<std::string, std::map<double, int>> counts;
  int small = 0, negative = 0;
  const int count = 4000;
  for (const auto& trial : search(etude::RandomSampler(), space, count, [](const auto&) { return 0.0; })) {
    small += trial.params.at("log") < 1e-2;
    negative += trial.params.at("x") < 0;
    for (const auto& name : {"n", "steps", "y"}) ++counts[name][trial.params.at(name)];
  }
  CHECK(small == doctest::Approx(count / 2.0).epsilon(0.06));
  CHECK(negative == doctest::Approx(count / 4.0).epsilon(0.08));
  CHECK(counts["n"].size() == 3);  // 1, 4, 7
  CHECK(counts["steps"].size() == 4);
  CHECK(counts["steps"].rbegin()->first == doctest::Approx(0.9));
  for (const auto& [name, by_value] : counts)
    for (const auto& [value, n] : by_value)
      CHECK(n == doctest::Approx(count / static_cast<double>(by_value.size())).epsilon(0.12));
}

TEST_CASE("the grid has each combination once") {
  const Space space{{"lr", FloatRange{0, 1}}, {"optim", Choices{{"sgd", "adamw"}}}};
  const etude::GridSampler grid{{"lr", {0.1, 0.2, 0.3}}, {"optim", {"adamw", "sgd"}}};
  CHECK(grid.most_trials() == 6);
  std::set<std::pair<double, double>> seen;
  const auto trials = search(grid, space, 6, [](const auto&) { return 0.0; });
  for (const auto& trial : trials) seen.emplace(trial.params.at("lr"), trial.params.at("optim"));
  CHECK(seen.size() == 6);
  CHECK(trials[0].param("optim") == "adamw");
  CHECK(trials[1].param("optim") == "sgd");
  CHECK(trials[1].param("lr") == 0.1);
  const auto fault = [](auto act) { return toy::fault_of<etude::ArgumentError>(act); };
  CHECK(fault([&] { sampled(grid, {}, {{"other", FloatRange{0, 1}}}); }) == "other isn't in the grid");
  CHECK(fault([&] {
          sampled(grid, {}, {{"lr", FloatRange{0.2, 1}}});
        }) == "lr is 0.1: must be from 0.2 to 1");
  CHECK(fault([] {
          (etude::GridSampler{{"lr", {}}});
        }) == "the grid has no value of lr: must have at least one");
}

TEST_CASE("a quasi-random sequence has one point in each of many equal boxes") {
  const Space space{{"x", FloatRange{0, 1}}, {"y", FloatRange{0, 1}}};
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    // The first trial is random. Trials 15 to 30 are a block of the sequence, without its zeros.
    const auto trials = search(
        etude::QMCSampler(seed), space, 32, [](const auto&) { return 0.0; }, seed);
    for (const int columns : {1, 2, 4, 8, 16}) {
      std::set<std::pair<int, int>> boxes;
      for (std::size_t i = 15; i < 31; ++i)
        boxes.emplace(static_cast<int>(trials[i].params.at("x") * columns),
                      static_cast<int>(trials[i].params.at("y") * 16 / columns));
      CHECK(boxes.size() == 16);
    }
  }
}

double distance(const std::map<std::string, double>& params) {
  return std::pow(params.at("x") - 2, 2) + std::pow(std::log10(params.at("lr")) + 3, 2) + params.at("optim");
}
Space mixed() {
  return {{"lr", FloatRange{.low = 1e-6, .high = 1, .log = true}},
          {"optim", Choices{{"adamw", "sgd"}}},
          {"x", FloatRange{-10, 10}}};
}

double best_of(const std::vector<FrozenTrial>& trials) {
  return std::ranges::min_element(trials, {}, [](const auto& trial) { return trial.values[0]; })->values[0];
}

TEST_CASE("TPE comes closer than random search, in either direction") {
  std::vector<double> parzen, random, most;
  for (std::uint64_t seed = 0; seed < 9; ++seed) {
    parzen.push_back(best_of(search(etude::TPESampler(), mixed(), 60, distance, seed)));
    random.push_back(best_of(search(etude::RandomSampler(), mixed(), 60, distance, seed)));
    const auto trials = search(
        etude::TPESampler(), mixed(), 60, [](const auto& params) { return -distance(params); }, seed,
        StudyDirection::maximize);
    most.push_back(best_of([&] {
      auto turned = trials;
      for (auto& trial : turned) trial.values[0] = -trial.values[0];
      return turned;
    }()));
  }
  const auto median = [](std::vector<double> values) {
    std::ranges::sort(values);
    return values[values.size() / 2];
  };
  CHECK(median(parzen) < median(random) / 5);
  CHECK(most == parzen);
}

TEST_CASE("the first trials of TPE are random, and a trial's values depend on its number and seed alone") {
  const etude::TPESampler few({.n_startup_trials = 3}), many({.n_startup_trials = 5});
  const auto a = search(few, mixed(), 8, distance, 1), b = search(few, mixed(), 8, distance, 1);
  const auto c = search(many, mixed(), 8, distance, 1);
  for (std::size_t i = 0; i < 8; ++i) {
    CHECK(a[i].params == b[i].params);
    CHECK((a[i].params == c[i].params) == (i < 3));
  }
}

TEST_CASE("TPE puts complete trials before pruned ones, and takes running ones for bad") {
  const Space space{{"x", FloatRange{0, 1}}};
  std::vector<FrozenTrial> trials;
  for (int i = 0; i < 20; ++i) trials.push_back(complete(i, space, {{"x", 0.1 + i * 0.001}}, 1 + i));
  for (int i = 20; i < 60; ++i) {
    trials.push_back(complete(i, space, {{"x", 0.9}}, 0));
    trials.back().state = i % 2 == 0 ? TrialState::pruned : TrialState::running;
    trials.back().intermediate_values = {{1, -100}};
  }
  double sum = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed)
    sum += sampled(etude::TPESampler(), trials, space, seed).at("x");
  CHECK(sum / 20 < 0.3);
}

TEST_CASE("hyperparameters that not all trials have are sampled alone") {
  const Space all{{"x", FloatRange{0, 1}}}, some{{"x", FloatRange{0, 1}}, {"momentum", FloatRange{0, 1}}};
  std::vector<FrozenTrial> trials;
  for (int i = 0; i < 30; ++i) {
    const bool has = i % 2 == 0;
    std::map<std::string, double> params{{"x", 0.5}};
    if (has) params["momentum"] = i < 16 ? 0.1 : 0.9;
    trials.push_back(complete(i, has ? some : all, params, has && i < 16 ? 0 : 1));
  }
  CHECK(etude::intersection_search_space(trials) == all);
  double sum = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed)
    sum += sampled(etude::TPESampler(), trials, some, seed).at("momentum");
  CHECK(sum / 20 < 0.35);
}

TEST_CASE("a grid may have more combinations than a number can count") {
  std::vector<etude::GridSampler::Values> values;
  for (int i = 0; i < 5; ++i)
    values.push_back({fmt::format("x{}", i), std::vector<nlohmann::ordered_json>(100'000, 0)});
  CHECK(etude::GridSampler(std::move(values)).most_trials() == std::int64_t{1} << 53);
}

}  // namespace study_samplers_test
