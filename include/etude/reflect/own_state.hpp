#pragma once

#include <concepts>
#include <nlohmann/json.hpp>
#include <type_traits>

namespace etude::inline v0::detail {

/// A type that defines its saved state, as JSON.
template <class T>
concept KeepsOwnState = requires(const T& saved, T& loaded, const nlohmann::ordered_json& json) {
                          { saved.state() } -> std::convertible_to<nlohmann::ordered_json>;
                          loaded.load_state(json);
                        };

struct load_state_probe {
  void load_state();
};
template <class T>
struct with_load_state_probe : T, load_state_probe {};

/// Whether T has a member named `load_state`, even a private one.
template <class T>
consteval bool has_name_load_state() {
  if constexpr (std::is_final_v<T>)
    return requires { &T::load_state; };
  else
    return !requires { &with_load_state_probe<T>::load_state; };
}

template <class T>
inline constexpr bool is_json = std::same_as<T, nlohmann::ordered_json> || std::same_as<T, nlohmann::json>;

/// A type with `state` or `load_state`, or PyTorch's `state_dict`, in a form that isn't coincidental.
template <class T>
concept means_to_keep_state =
    requires(T& saved) {
      requires is_json<std::remove_cvref_t<decltype(saved.state())>> ||
                   (std::convertible_to<decltype(saved.state()), nlohmann::ordered_json> &&
                    has_name_load_state<T>());
    } || requires(T& saved) { requires is_json<std::remove_cvref_t<decltype(saved.state_dict())>>; } ||
    requires(T& saved, const nlohmann::ordered_json& json) { saved.load_state(json); };

}  // namespace etude::inline v0::detail
