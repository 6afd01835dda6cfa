#include "etude/study/trial.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/study/trial_text.hpp"

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
  std::vector<FrozenTrial> best;
  for (const auto i : detail::unbeaten(trials, directions)) best.push_back(trials[i]);
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
