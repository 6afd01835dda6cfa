#pragma once

#include <fmt/format.h>

#include <concepts>
#include <cstddef>
#include <exception>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "etude/reflect/json.hpp"
#include "etude/reflect/json_reader.hpp"
#include "etude/reflect/struct.hpp"
#include "etude/reflect/three_way.hpp"
#include "etude/reflect/type_name.hpp"

namespace etude {
namespace detail {

/// A callback that says itself what is to be kept of it, as a JSON object.
template <class Callback>
concept KeepsOwnState =
    requires(const Callback& saved, Callback& loaded, const nlohmann::ordered_json& json) {
      { saved.state() } -> std::convertible_to<nlohmann::ordered_json>;
      loaded.load_state(json);
    };

template <class Callback>
concept Stateful = KeepsOwnState<Callback> || ReflectedStruct<Callback>;

/// What a callback's state is stored under: `static constexpr std::string_view state_key`, or the name of its
/// class, without namespaces and template arguments.
template <class Callback>
constexpr std::string_view state_key() {
  if constexpr (requires { std::string_view(Callback::state_key); }) {
    return Callback::state_key;
  } else {
    constexpr auto name = short_type_name<Callback>();
    return name.substr(0, name.find('<'));
  }
}

}  // namespace detail

/// What a checkpoint says of the callbacks that isn't as they are now, in words.
struct StateReport {
  std::vector<std::string> differences;  ///< Arguments that were others: those given now win.
  std::vector<std::string> problems;     ///< State that is missing, left over or of another form.
};

/// The state of one callback, whatever its type, in the form of Hugging Face's ExportableState: "args" is
/// what it was made with, as far as that isn't its default, and "attributes" what has changed since. The
/// callback must stay where it is.
class CallbackState {
 public:
  template <detail::Stateful Callback>
  explicit CallbackState(Callback& callback) : key_(detail::state_key<Callback>()) {
    if constexpr (detail::KeepsOwnState<Callback>) {
      save_ = [&callback](const Json&) {
        return Json{{"args", Json::object()}, {"attributes", callback.state()}};
      };
      load_ = [&callback](const Json&, const Json& saved, std::string_view key, StateReport& report) {
        try {
          callback.load_state(saved.at("attributes"));
        } catch (const std::exception& error) {
          report.problems.push_back(fmt::format("the state of {} can't be used: {}", key, error.what()));
        }
      };
    } else {
      given_ = to_json_value(callback);
      save_ = [&callback](const Json& given) {
        return Json{{"args", changed(defaults<Callback>(), given)},
                    {"attributes", changed(given, to_json_value(callback))}};
      };
      load_ = [&callback](const Json& given, const Json& saved, std::string_view key, StateReport& report) {
        auto given_then = defaults<Callback>();
        given_then.update(saved.at("args"));
        const auto& attributes = saved.at("attributes");
        for (const auto& [name, value] : attributes.items())
          if (!given.contains(name))
            report.problems.push_back(fmt::format("{} has no member {} any more", key, name));
        const auto merged = three_way(given_then, attributes, given, report.differences, key);
        detail::JsonReader reader;
        reader.read(merged, callback, std::string(key));
        for (auto& fault : reader.faults) report.problems.push_back(std::move(fault));
      };
    }
  }

  const std::string& key() const { return key_; }
  nlohmann::ordered_json save() const { return save_(given_); }
  void load(const nlohmann::ordered_json& saved, StateReport& report) const {
    if (saved.is_object() && saved.contains("args") && saved["args"].is_object() &&
        saved.contains("attributes") && saved["attributes"].is_object())
      return load_(given_, saved, key_, report);
    report.problems.push_back(
        fmt::format("the state of {} can't be used: it has no args and attributes", key_));
  }

 private:
  using Json = nlohmann::ordered_json;

  template <class Callback>
  static Json defaults() {
    if constexpr (std::is_default_constructible_v<Callback>)
      return to_json_value(Callback{});
    else
      return Json::object();
  }

  std::string key_;
  Json given_ = Json::object();
  std::function<Json(const Json&)> save_;
  std::function<void(const Json&, const Json&, std::string_view, StateReport&)> load_;
};

/// The states of several callbacks by key; of those that share a key, a list in their order.
inline nlohmann::ordered_json save_states(const std::vector<CallbackState>& callbacks) {
  std::map<std::string, std::vector<nlohmann::ordered_json>> states;
  for (const auto& callback : callbacks) states[callback.key()].push_back(callback.save());
  auto result = nlohmann::ordered_json::object();
  for (auto& [key, list] : states)
    result[key] = list.size() == 1 ? std::move(list.front()) : nlohmann::ordered_json(std::move(list));
  return result;
}

/// Gives callbacks the states that `save_states` wrote. What doesn't match is told, and no reason to stop.
inline void load_states(const nlohmann::ordered_json& saved, const std::vector<CallbackState>& callbacks,
                        StateReport& report) {
  if (!saved.is_object())
    return report.problems.push_back("the states of the callbacks can't be used: they are no JSON object");
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
      report.problems.push_back(fmt::format("there is no state of {}: it starts anew", callback.key()));
  }
  for (const auto& [key, states] : saved.items())
    if (const auto count = states_of(key).size(); key != "TrainerControl" && used[key] < count)
      report.problems.push_back(
          fmt::format("there is the state of {} {}, for which there is no callback",
                      count - used[key] == 1 ? "a" : fmt::format("{}", count - used[key]), key));
}

}  // namespace etude
