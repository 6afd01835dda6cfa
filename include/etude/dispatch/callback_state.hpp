#pragma once

#include <array>
#include <boost/hana/accessors.hpp>
#include <boost/hana/first.hpp>
#include <boost/hana/unpack.hpp>
#include <concepts>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "etude/callback.hpp"
#include "etude/reflect/json.hpp"
#include "etude/reflect/json_reader.hpp"
#include "etude/reflect/own_state.hpp"
#include "etude/reflect/struct.hpp"
#include "etude/reflect/type_name.hpp"

namespace etude::inline v0 {

namespace mistake {
template <class Callback, class State, class LoadState>
struct state_is_never_saved_so_declare_state_and_load_state_public_as;
template <class Callback>
struct an_option_and_a_member_of_state_have_one_name_so_rename_one;
}  // namespace mistake

namespace detail {

/// A callback that keeps its state apart from its options, in a member `state` whose members are saved.
template <class Callback>
concept KeepsStateApart = requires(const Callback& callback) {
                            requires ReflectedStruct<typename Callback::State>;
                            requires std::same_as<decltype(callback.state), typename Callback::State>;
                          };

template <class T>
consteval auto names_of_fields() {
  return boost::hana::unpack(boost::hana::accessors<T>(), [](const auto&... accessors) {
    return std::array{std::string_view(boost::hana::first(accessors).c_str())...};
  });
}

/// Whether no member has the same name in both.
template <class Options, class State>
consteval bool have_different_names() {
  for (const auto option : names_of_fields<Options>())
    for (const auto field : names_of_fields<State>())
      if (option == field) return false;
  return true;
}

template <class Callback>
concept Stateful = KeepsOwnState<Callback> || ReflectedStruct<Callback> || KeepsStateApart<Callback>;

/// The members of a callback's ETUDE_STRUCT, and the members of its `state`.
template <class Callback>
std::vector<JsonField> saved_fields(const Callback& callback) {
  std::vector<JsonField> fields;
  if constexpr (ReflectedStruct<Callback>) {
    if constexpr (KeepsStateApart<Callback>)
      static_assert(expect<have_different_names<Callback, typename Callback::State>(),
                           mistake::an_option_and_a_member_of_state_have_one_name_so_rename_one<Callback>>());
    fields = json_fields(callback);
  }
  if constexpr (KeepsStateApart<Callback>)
    for (const auto& field : json_fields(callback.state)) fields.push_back(field);
  return fields;
}

/// Whether a callback's state is saved. Rejects callbacks that seem to define it but misname the methods.
template <class Callback>
consteval bool is_stateful() {
  if constexpr (!KeepsOwnState<Callback>)
    expect<!means_to_keep_state<Callback>,
           mistake::state_is_never_saved_so_declare_state_and_load_state_public_as<
               Callback, nlohmann::ordered_json() const, void(const nlohmann::ordered_json&)>>();
  return Stateful<Callback>;
}

/// The key of a callback's state: the name of its class, without namespaces and template arguments.
template <class Callback>
constexpr std::string_view state_key() {
  constexpr auto name = short_type_name<Callback>();
  return name.substr(0, name.find('<'));
}

/// The type-erased operations that CallbackState needs of a callback.
struct CallbackAccess {
  using Json = nlohmann::ordered_json;

  bool keeps_own_state;
  /// Returns the callback's custom state, or its members.
  Json (*save)(const void* callback);
  /// Restores a result of `save`; returns a description of each problem.
  std::vector<std::string> (*load)(void* callback, const Json& saved, const std::string& key);
  /// The members of a default-constructed callback; null if its type isn't default constructible.
  Json (*defaults)();
};

/// Reads members; returns a description of each problem with `saved`.
std::vector<std::string> faults_of_reading(const nlohmann::ordered_json& saved,
                                           const std::vector<JsonField>& members, const std::string& key);

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
    CallbackAccess access{.keeps_own_state = false,
                          .save =
                              [](const void* callback) {
                                return to_json_object(saved_fields(*static_cast<const Callback*>(callback)));
                              },
                          .load =
                              [](void* callback, const Json& saved, const std::string& key) {
                                return faults_of_reading(
                                    saved, saved_fields(*static_cast<Callback*>(callback)), key);
                              },
                          .defaults = nullptr};
    if constexpr (std::is_default_constructible_v<Callback>)
      access.defaults = [] { return to_json_object(saved_fields(Callback{})); };
    return access;
  }
}

template <class Callback>
inline constexpr CallbackAccess access_to = callback_access<Callback>();

}  // namespace detail

/// How the callbacks in a checkpoint differ from the current ones, in words.
struct StateReport {
  std::vector<std::string> differences;  ///< Arguments that changed: the current values win.
  std::vector<std::string> problems;     ///< State that is missing, left over or malformed.
};

/// The type-erased state of one callback, in the form of Hugging Face's ExportableState: "args" holds the
/// arguments that differ from their defaults, and "attributes" the members that have changed since. The
/// callback must not be moved.
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
  Json given_;  // its members at construction
};

/// The states of several callbacks by key; callbacks with the same key share a list, in their order.
nlohmann::ordered_json save_states(const std::vector<CallbackState>& callbacks);

/// Restores the states written by `save_states`. Mismatches are reported, not errors.
void load_states(const nlohmann::ordered_json& saved, const std::vector<CallbackState>& callbacks,
                 StateReport& report);

}  // namespace etude::inline v0
