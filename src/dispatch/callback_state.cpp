#include "etude/dispatch/callback_state.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <exception>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/reflect/three_way.hpp"

namespace etude::inline v0 {

std::vector<std::string> detail::faults_of_reading(const nlohmann::ordered_json& saved,
                                                   const std::vector<JsonField>& members,
                                                   const std::string& key) {
  JsonReader reader;
  reader.read_fields(saved, members, key);
  return std::move(reader.faults);
}

CallbackState::CallbackState(std::string_view key, void* callback, const detail::CallbackAccess& access)
    : key_(key),
      callback_(callback),
      access_(&access),
      given_(access.keeps_own_state ? Json::object() : access.save(callback)) {}

nlohmann::ordered_json CallbackState::save() const {
  auto now = access_->save(callback_);
  if (access_->keeps_own_state) return {{"args", Json::object()}, {"attributes", std::move(now)}};
  return {{"args", changed(defaults(), given_)}, {"attributes", changed(given_, now)}};
}

void CallbackState::load(const nlohmann::ordered_json& saved, StateReport& report) const {
  if (saved.is_object() && saved.contains("args") && saved["args"].is_object() &&
      saved.contains("attributes") && saved["attributes"].is_object())
    return access_->keeps_own_state ? load_own(saved, report) : load_members(saved, report);
  report.problems.push_back(
      fmt::format("the state of {} can't be used: it has no args and attributes", key_));
}

nlohmann::ordered_json CallbackState::defaults() const {
  return access_->defaults ? access_->defaults() : Json::object();
}

void CallbackState::load_own(const Json& saved, StateReport& report) const {
  try {
    access_->load(callback_, saved.at("attributes"), key_);
  } catch (const std::exception& error) {
    report.problems.push_back(fmt::format("the state of {} can't be used: {}", key_, error.what()));
  }
}

void CallbackState::load_members(const Json& saved, StateReport& report) const {
  auto given_then = defaults();
  given_then.update(saved.at("args"));
  const auto& attributes = saved.at("attributes");
  for (const auto& [name, value] : attributes.items())
    if (!given_.contains(name))
      report.problems.push_back(fmt::format("{} no longer has a member {}", key_, name));
  const auto merged = three_way(given_then, attributes, given_, report.differences, key_);
  for (auto& fault : access_->load(callback_, merged, key_)) report.problems.push_back(std::move(fault));
}

nlohmann::ordered_json save_states(const std::vector<CallbackState>& callbacks) {
  std::map<std::string, std::vector<nlohmann::ordered_json>> states;
  for (const auto& callback : callbacks) states[callback.key()].push_back(callback.save());
  auto result = nlohmann::ordered_json::object();
  for (auto& [key, list] : states)
    result[key] = list.size() == 1 ? std::move(list.front()) : nlohmann::ordered_json(std::move(list));
  return result;
}

void load_states(const nlohmann::ordered_json& saved, const std::vector<CallbackState>& callbacks,
                 StateReport& report) {
  if (!saved.is_object())
    return report.problems.push_back("the states of the callbacks can't be used: they aren't a JSON object");
  std::map<std::string, std::size_t> used;
  const auto states_of = [&](const std::string& key) {
    if (!saved.contains(key)) return std::vector<nlohmann::ordered_json>();
    const auto& states = saved[key];
    return states.is_array() ? states.get<std::vector<nlohmann::ordered_json>>() : std::vector{states};
  };
  for (const auto& callback : callbacks) {
    const auto states = states_of(callback.key());
    const auto next = used[callback.key()]++;
    if (next < states.size())
      callback.load(states[next], report);
    else
      report.problems.push_back(
          fmt::format("the state of {} is missing: it starts from scratch", callback.key()));
  }
  for (const auto& [key, states] : saved.items())
    if (const auto count = states_of(key).size(); key != "TrainerControl" && used[key] < count)
      report.problems.push_back(
          fmt::format("the state of {} {} has no matching callback",
                      count - used[key] == 1 ? "a" : fmt::format("{}", count - used[key]), key));
}

}  // namespace etude::inline v0
