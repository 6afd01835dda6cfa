#include "etude/study/trial_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace etude::inline v0::detail {

std::string_view state_text(TrialState state) {
  return state == TrialState::fail ? "failed" : to_string(state);
}

std::string param_text(const FrozenTrial& trial, const std::string& name, int digits) {
  const auto value = trial.params.find(name);
  if (value == trial.params.end()) return {};
  const auto distribution = trial.distributions.find(name);
  if (distribution == trial.distributions.end()) return number_text(value->second, digits);
  if (const auto* choices = std::get_if<Choices>(&distribution->second)) {
    const double index = value->second, size = static_cast<double>(choices->choices.size());
    if (!(index >= 0 && index < size)) return number_text(index, digits);
    const auto& choice = choices->choices[static_cast<std::size_t>(index)];
    if (choice.is_string()) return choice.get<std::string>();
    if (choice.is_number_float()) return number_text(choice.get<double>(), digits);
    return choice.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  }
  constexpr double exact = 1e15;
  if (std::holds_alternative<IntRange>(distribution->second) && std::abs(value->second) < exact)
    return fmt::format("{:.0f}", value->second);
  return number_text(value->second, digits);
}

bool has_choices(const std::vector<FrozenTrial>& trials, const std::string& name) {
  return std::ranges::any_of(trials, [&](const FrozenTrial& trial) {
    const auto found = trial.distributions.find(name);
    return found != trial.distributions.end() && std::holds_alternative<Choices>(found->second);
  });
}

std::optional<double> value_of(const FrozenTrial& trial, std::size_t objective) {
  if (objective < trial.values.size()) return trial.values[objective];
  if (objective == 0 && trial.state == TrialState::pruned && !trial.intermediate_values.empty())
    return trial.intermediate_values.rbegin()->second;
  return {};
}

std::optional<double> duration_of(const FrozenTrial& trial) {
  if (!trial.datetime_start || !trial.datetime_complete) return {};
  const double seconds = *trial.datetime_complete - *trial.datetime_start;
  return seconds >= 0 && std::isfinite(seconds) ? std::optional(seconds) : std::nullopt;
}

namespace {

/// A complete trial's values, negated where larger is better, so that less is better; empty if the trial
/// isn't complete or has no values.
std::vector<double> losses_of(const FrozenTrial& trial, const std::vector<StudyDirection>& directions) {
  std::vector<double> losses;
  if (trial.state != TrialState::complete || trial.values.size() != directions.size()) return losses;
  for (std::size_t i = 0; i < directions.size(); ++i) {
    if (std::isnan(trial.values[i])) return {};
    losses.push_back(directions[i] == StudyDirection::minimize ? trial.values[i] : -trial.values[i]);
  }
  return losses;
}

}  // namespace

std::vector<std::size_t> unbeaten(const std::vector<FrozenTrial>& trials,
                                  const std::vector<StudyDirection>& directions) {
  std::vector<std::pair<std::vector<double>, std::size_t>> candidates, front;
  for (std::size_t i = 0; i < trials.size(); ++i)
    if (auto losses = losses_of(trials[i], directions); !losses.empty())
      candidates.emplace_back(std::move(losses), i);
  // In this order no trial beats an earlier one in all objectives.
  std::ranges::sort(candidates);
  for (auto& candidate : candidates) {
    const auto& losses = candidate.first;
    const bool is_beaten = std::ranges::any_of(front, [&](const auto& other) {
      return other.first != losses && std::ranges::equal(other.first, losses, std::ranges::less_equal());
    });
    if (!is_beaten)
      front.push_back(std::move(candidate));
    else if (directions.size() == 1)
      break;
  }
  std::vector<std::size_t> best;
  for (const auto& each : front) best.push_back(each.second);
  std::ranges::sort(best);
  return best;
}

std::vector<std::size_t> best_of(const std::vector<FrozenTrial>& trials,
                                 const std::vector<StudyDirection>& directions) {
  auto best = unbeaten(trials, directions);
  if (directions.size() == 1 && best.size() > 1) best.resize(1);
  return best;
}

std::vector<std::size_t> best_first(const std::vector<FrozenTrial>& trials,
                                    const std::vector<StudyDirection>& directions,
                                    const std::vector<std::size_t>& best) {
  constexpr std::array states{TrialState::complete, TrialState::pruned, TrialState::running,
                              TrialState::waiting, TrialState::fail};
  struct Rank {
    std::ptrdiff_t state;
    bool isnt_best;
    std::vector<double> losses;
  };
  std::vector<Rank> ranks;
  for (const auto& trial : trials) {
    auto losses = losses_of(trial, directions);
    if (losses.empty() && trial.state == TrialState::complete)
      losses = {std::numeric_limits<double>::infinity(), 1};
    ranks.push_back({std::ranges::find(states, trial.state) - states.begin(), true, std::move(losses)});
  }
  for (const auto i : best) ranks[i].isnt_best = false;
  std::vector<std::size_t> order(trials.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
    if (ranks[a].state != ranks[b].state) return ranks[a].state < ranks[b].state;
    if (ranks[a].isnt_best != ranks[b].isnt_best) return ranks[b].isnt_best;
    return ranks[a].losses < ranks[b].losses;
  });
  return order;
}

std::vector<std::pair<std::string_view, std::int64_t>> counts_of(const std::vector<FrozenTrial>& trials) {
  std::vector<std::pair<std::string_view, std::int64_t>> counts;
  for (const auto state :
       {TrialState::complete, TrialState::pruned, TrialState::fail, TrialState::running, TrialState::waiting})
    if (const auto count = std::ranges::count(trials, state, &FrozenTrial::state); count > 0)
      counts.emplace_back(state_text(state), count);
  return counts;
}

std::vector<std::string> names_by_importance(const std::vector<FrozenTrial>& trials,
                                             const std::map<std::string, double>& importances) {
  std::set<std::string> all;
  for (const auto& trial : trials)
    for (const auto& [name, value] : trial.params) all.insert(name);
  std::vector<std::string> names(all.begin(), all.end());
  const auto importance = [&](const std::string& name) {
    const auto found = importances.find(name);
    return found == importances.end() ? 0 : -found->second;
  };
  std::ranges::stable_sort(names, {}, importance);
  return names;
}

}  // namespace etude::inline v0::detail
