#pragma once

#include <concepts>
#include <type_traits>

#include "etude/callback.hpp"

/// Callbacks that derive from another: an `on` in the derived class hides all of the base's, unless it
/// declares `using Base::on;`. Every callback in Etude names itself (`using this_callback = ...`), so that
/// classes derived from it are recognized; a callback may list other bases in `using bases =
/// etude::callbacks<...>`.
namespace etude::inline v0 {

namespace mistake {

template <class Callback, class Base, class Event>
struct handler_of_the_base_is_hidden_so_write_using_Base_on;
template <class Callback>
struct callback_has_several_bases_or_a_private_one_so_derive_publicly_and_write_using_bases;

}  // namespace mistake

namespace detail {

template <class T>
inline constexpr bool is_callback_list = false;
template <class... List>
inline constexpr bool is_callback_list<callbacks<List...>> = true;

template <class T>
concept names_its_bases = requires { requires is_callback_list<typename T::bases>; };

struct this_callback_probe {
  struct this_callback;
};
template <class T>
struct with_this_callback : T, this_callback_probe {};

/// The known bases of a callback that are callbacks themselves.
template <class T>
consteval auto callback_bases() {
  if constexpr (names_its_bases<T>) {
    return typename T::bases{};
  } else if constexpr (requires { typename T::this_callback; }) {
    if constexpr (std::same_as<typename T::this_callback, T>)
      return callbacks<>{};
    else
      return callbacks<typename T::this_callback>{};
  } else {
    if constexpr (!std::is_final_v<T>)
      expect<
          requires { typename with_this_callback<T>::this_callback; },
          mistake::callback_has_several_bases_or_a_private_one_so_derive_publicly_and_write_using_bases<T>>();
    return callbacks<>{};
  }
}

template <class T, class Base, class Event>
consteval bool keeps_handler() {
  if constexpr (std::is_base_of_v<Base, T> && Handles<Base, Event>)
    return expect<Handles<T, Event>,
                  mistake::handler_of_the_base_is_hidden_so_write_using_Base_on<T, Base, Event>>();
  else
    return true;
}

/// `T` handles every event that a base handles, among the known events and those it declares.
template <class T, class... Known>
consteval bool keeps_handlers_of_bases() {
  return []<class... Bases>(callbacks<Bases...>) {
    return ([]<class Base, class... Own>(std::type_identity<Base>, events<Own...>) {
      return (keeps_handler<T, Base, Known>() && ...) && (keeps_handler<T, Base, Own>() && ...);
    }(std::type_identity<Bases>{}, declared_events_t<Bases>{}) &&
            ...);
  }(callback_bases<T>());
}

}  // namespace detail
}  // namespace etude::inline v0
