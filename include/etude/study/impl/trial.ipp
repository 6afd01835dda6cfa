#pragma once

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/base/linkage.hpp"
#include "etude/study/trial.hpp"

namespace etude::inline v0 {

ETUDE_INLINE nlohmann::ordered_json FrozenTrial::param(const std::string& name) const {
  const auto value = params.find(name);
  if (value == params.end()) throw ArgumentError(fmt::format("trial {} has no {}", number, name));
  return from_number(distributions.at(name), value->second);
}

ETUDE_INLINE std::map<std::string, Distribution> intersection_search_space(
    const std::vector<FrozenTrial>& trials) {
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
