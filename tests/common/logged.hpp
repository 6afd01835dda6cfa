#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "etude/trainer_state.hpp"

namespace toy {

/// The values that a training logged under a name, oldest first.
inline std::vector<double> logged(const etude::TrainerState& state, const std::string& name) {
  std::vector<double> values;
  for (const auto& entry : state.log_history)
    if (const auto found = entry.find(name); found != entry.end())
      values.push_back(found->second.template get<double>());
  return values;
}

/// The steps at which something was logged under a name.
inline std::vector<int> logged_at(const etude::TrainerState& state, const std::string& name) {
  std::vector<int> steps;
  for (const auto& entry : state.log_history)
    if (entry.contains(name)) steps.push_back(entry.at("step").get<int>());
  return steps;
}

/// Whether something was logged under a name with this prefix.
inline bool logged_any(const etude::TrainerState& state, std::string_view prefix) {
  for (const auto& entry : state.log_history)
    for (const auto& [name, value] : entry)
      if (name.starts_with(prefix)) return true;
  return false;
}

}  // namespace toy
