#pragma once

#include <concepts>
#include <type_traits>

#include "etude/callback.hpp"

/// Callbacks that derive from another: an `on` in the derived class hides all of the base's, unless it
/// declares `using Base::on;`. Every callback in Etude names itself (`using this_callback = ...`), so that
/// classes derived from it are recognized; a callback may list its bases in `using bases =
/// etude::callbacks<...>`, and then only those are checked. Under Clang, the bases of a class that declares
/// neither name and isn't an aggregate can't be seen.
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

/// `T` handles each of these events, and those that `Base` declares, if `Base` does.
template <class T, class Base, class... Known>
consteval bool keeps_handlers_of() {
  return []<class... Own>(events<Own...>) {
    return (keeps_handler<T, Base, Known>() && ...) && (keeps_handler<T, Base, Own>() && ...);
  }(declared_events_t<Base>{});
}

/// Converts to each public base of `T` in turn, and compares its handlers.
template <class T, class... Known>
struct base_probe {
  template <class Base>
  static consteval bool visit() {
    if constexpr (std::is_base_of_v<Base, T> && std::is_convertible_v<T*, Base*> && !std::same_as<Base, T>)
      return keeps_handlers_of<T, Base, Known...>();
    else
      return false;
  }
  template <class Base>
    requires(visit<Base>())
  operator Base() const;
};

/// The same for the bases that nothing names: GCC lists them; otherwise those of an aggregate, which are its
/// first elements.
template <class T, class... Known>
consteval bool keeps_handlers_of_unnamed_bases() {
#if defined(__GNUC__) && !defined(__clang__)
  []<class... Bases>([[maybe_unused]] callbacks<Bases...> all) {
    (static_cast<void>(base_probe<T, Known...>::template visit<Bases>()), ...);
  }(callbacks<__bases(T)...>{});
#else
  if constexpr (std::is_aggregate_v<T>)
    static_cast<void>(requires(base_probe<T, Known...> base) { T{base, base, base, base}; });
#endif
  return true;
}

/// `T` handles every event that a base handles, among the known events and those it declares.
template <class T, class... Known>
consteval bool keeps_handlers_of_bases() {
  const bool keeps_named = []<class... Bases>(callbacks<Bases...>) {
    return (keeps_handlers_of<T, Bases, Known...>() && ...);
  }(callback_bases<T>());
  if constexpr (names_its_bases<T> || !has_name_on<T>())
    return keeps_named;
  else
    return keeps_named && keeps_handlers_of_unnamed_bases<T, Known...>();
}

}  // namespace detail
}  // namespace etude::inline v0
