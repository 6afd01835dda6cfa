#pragma once

#include <concepts>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "etude/linkage.hpp"
#include "etude/reflect/json.hpp"
#include "etude/reflect/json_reader.hpp"
#include "etude/reflect/struct.hpp"
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

/// What CallbackState needs to know of a callback's type.
struct CallbackAccess {
  using Json = nlohmann::ordered_json;

  bool keeps_own_state;
  /// Its own state, or its members.
  Json (*save)(const void* callback);
  /// Takes over what `save` gives; returns what is wrong with it, in words.
  std::vector<std::string> (*load)(void* callback, const Json& saved, const std::string& key);
  /// The members of one that was just made; null if nobody can make one without arguments.
  Json (*defaults)();
};

template <class Callback>
constexpr CallbackAccess callback_access() {
  using Json = nlohmann::ordered_json;
  if constexpr (KeepsOwnState<Callback>) {
    return {
        .keeps_own_state = true,
        .save = [](const void* callback) -> Json { return static_cast<const Callback*>(callback)->state(); },
        .load =
            [](void* callback, const Json& saved, const std::string&) {
              static_cast<Callback*>(callback)->load_state(saved);
              return std::vector<std::string>();
            },
        .defaults = nullptr};
  } else {
    CallbackAccess access{
        .keeps_own_state = false,
        .save = [](const void* callback) { return to_json_value(*static_cast<const Callback*>(callback)); },
        .load =
            [](void* callback, const Json& saved, const std::string& key) {
              JsonReader reader;
              reader.read(saved, *static_cast<Callback*>(callback), key);
              return std::move(reader.faults);
            },
        .defaults = nullptr};
    if constexpr (std::is_default_constructible_v<Callback>)
      access.defaults = [] { return to_json_value(Callback{}); };
    return access;
  }
}

template <class Callback>
inline constexpr CallbackAccess access_to = callback_access<Callback>();

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
  explicit CallbackState(Callback& callback)
      : CallbackState(detail::state_key<Callback>(), &callback, detail::access_to<Callback>) {}

  const std::string& key() const { return key_; }
  nlohmann::ordered_json save() const;
  void load(const nlohmann::ordered_json& saved, StateReport& report) const;

 private:
  using Json = nlohmann::ordered_json;

  CallbackState(std::string_view key, void* callback, const detail::CallbackAccess& access);
  Json defaults() const;
  void load_own(const Json& saved, StateReport& report) const;
  void load_members(const Json& saved, StateReport& report) const;

  std::string key_;
  void* callback_;
  const detail::CallbackAccess* access_;
  Json given_;  // its members when this was made
};

/// The states of several callbacks by key; of those that share a key, a list in their order.
nlohmann::ordered_json save_states(const std::vector<CallbackState>& callbacks);

/// Gives callbacks the states that `save_states` wrote. What doesn't match is told, and no reason to stop.
void load_states(const nlohmann::ordered_json& saved, const std::vector<CallbackState>& callbacks,
                 StateReport& report);

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/callback_state-inl.hpp"
#endif
