#pragma once

#include <concepts>
#include <type_traits>

#include "etude/callback.hpp"

/// Checks callbacks that derive from another. An `on` in the derived class hides every `on` of the base
/// unless the class declares `using Base::on;`. A callback that hides handlers on purpose lists its events in
/// `using handles = etude::events<...>`. GCC sees all bases; Clang sees only bases that have an ETUDE_STRUCT,
/// and the bases of aggregates.
namespace etude::inline v0 {

namespace mistake {
template <class Callback, class Base, class Event>
struct handler_of_the_base_is_hidden_so_write_using_Base_on;
}  // namespace mistake

namespace detail {

template <class T, class Base, class Event>
consteval bool keeps_handler() {
  if constexpr (std::is_base_of_v<Base, T> && Handles<Base, Event>)
    return expect<Handles<T, Event>,
                  mistake::handler_of_the_base_is_hidden_so_write_using_Base_on<T, Base, Event>>();
  else
    return true;
}

/// True if `T` handles every event that `Base` handles, among `Known` and the events that `Base` declares.
template <class T, class Base, class... Known>
consteval bool keeps_handlers_of() {
  return []<class... Own>(events<Own...>) {
    return (keeps_handler<T, Base, Known>() && ...) && (keeps_handler<T, Base, Own>() && ...);
  }(declared_events_t<Base>{});
}

/// Compares the handlers of a public base of `T`; converts to each base in turn.
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

/// True if `T` handles every event that a base handles, among the known events and the events that the base
/// declares.
template <class T, class... Known>
consteval bool keeps_handlers_of_bases() {
  if constexpr (has_name_on<T>() && !declares_events<T>) {
    using Probe = base_probe<T, Known...>;
#if defined(__GNUC__) && !defined(__clang__)
    []<class... Bases>([[maybe_unused]] callbacks<Bases...> all) {
      (static_cast<void>(Probe::template visit<Bases>()), ...);
    }(callbacks<__bases(T)...>{});
#else
    if constexpr (requires { typename T::etude_struct; })
      static_cast<void>(Probe::template visit<typename T::etude_struct>());
    // The bases of an aggregate are its first elements.
    if constexpr (std::is_aggregate_v<T>)
      static_cast<void>(requires(Probe base) { T{base, base, base, base}; });
#endif
  }
  return true;
}

}  // namespace detail
}  // namespace etude::inline v0
