#include "etude/study/trial.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "etude/base/error.hpp"

namespace etude::inline v0 {

nlohmann::ordered_json FrozenTrial::param(const std::string& name) const {
  const auto value = params.find(name);
  if (value == params.end()) throw ArgumentError(fmt::format("trial {} has no {}", number, name));
  const auto& distribution = distributions.at(name);
  // Optuna keeps an enqueued value even if it is outside the range.
  if (const auto* range = std::get_if<FloatRange>(&distribution))
    if (value->second < range->low || value->second > range->high) return value->second;
  if (const auto* range = std::get_if<IntRange>(&distribution))
    if (const auto whole = std::llround(value->second); whole < range->low || whole > range->high)
      return std::int64_t{whole};
  return from_number(distribution, value->second);
}

std::map<std::string, nlohmann::ordered_json> Trial::params() const {
  std::map<std::string, nlohmann::ordered_json> values;
  const auto trial = frozen();
  for (const auto& [name, number] : trial.params) values[name] = trial.param(name);
  return values;
}

std::vector<FrozenTrial> best_trials(const std::vector<FrozenTrial>& trials,
                                     const std::vector<StudyDirection>& directions) {
  const auto is_better = [&](const FrozenTrial& a, const FrozenTrial& b) {
    bool any = false;
    for (std::size_t i = 0; i < directions.size(); ++i) {
      const bool is_minimized = directions[i] == StudyDirection::minimize;
      const double ours = is_minimized ? a.values[i] : -a.values[i],
                   other = is_minimized ? b.values[i] : -b.values[i];
      if (ours > other) return false;
      any |= ours < other;
    }
    return any;
  };
  std::vector<FrozenTrial> best;
  if (directions.size() == 1) {
    for (const auto& trial : trials) {
      if (trial.state != TrialState::complete) continue;
      if (!best.empty() && is_better(trial, best[0])) best.clear();
      if (best.empty() || !is_better(best[0], trial)) best.push_back(trial);
    }
    return best;
  }
  for (const auto& trial : trials)
    if (trial.state == TrialState::complete && std::ranges::none_of(trials, [&](const auto& other) {
          return other.state == TrialState::complete && is_better(other, trial);
        }))
      best.push_back(trial);
  return best;
}

std::map<std::string, Distribution> intersection_search_space(const std::vector<FrozenTrial>& trials) {
  std::optional<std::map<std::string, Distribution>> common;
  for (const auto& trial : trials) {
    if (trial.state != TrialState::complete && trial.state != TrialState::pruned) continue;
    if (!common) common = trial.distributions;
    std::erase_if(*common, [&](const auto& entry) {
      const auto found = trial.distributions.find(entry.first);
      return found == trial.distributions.end() || found->second != entry.second;
    });
  }
  if (!common) return {};
  std::erase_if(*common, [](const auto& entry) { return is_single(entry.second); });
  return *common;
}

}  // namespace etude::inline v0
