#pragma once

#include <concepts>
#include <functional>
#include <type_traits>

/// What makes a struct a callback: the concepts and declarations that the handler and its checks stand on.
namespace etude {

/// A list of event types.
template <class... Events>
struct events {};

/// A list of callback types, for `using runs_after = etude::callbacks<...>` and `runs_before`.
template <class... Callbacks>
struct callbacks {};

namespace detail {

/// To need a type that isn't defined is the error of a mistake; see callback_checks.hpp.
template <bool Good, class Mistake>
consteval bool expect() {
  if constexpr (!Good) static_cast<void>(sizeof(Mistake));
  return Good;
}

template <class Callback, class Event>
concept reads = requires(Callback& callback, const Event& event) { callback.on(event); };

template <class Callback, class Event>
concept takes_mutable = requires(Callback& callback, Event& event) { callback.on(event); };

}  // namespace detail

/// `Callback` has an `on` that can be called with `Event`. A handler whose return type is deduced has its
/// body instantiated by this question, so declare the return type (`void`).
template <class Callback, class Event>
concept Handles = detail::reads<Callback, Event> || detail::takes_mutable<Callback, Event>;

/// `Callback` may change the payload of `Event`: its `on` takes `Event&`. One that takes `const Event&`
/// reads.
template <class Callback, class Event>
concept Writes = detail::takes_mutable<Callback, Event> && (!detail::reads<Callback, Event>);

namespace detail {

struct name_probe {
  void on();
};
template <class T>
struct with_name_probe : T, name_probe {};

/// Whether `on` names anything in T: a function in any form, private or inherited ones included. Two bases
/// that both have the name make it ambiguous, which is the only way to see a private one.
template <class T>
consteval bool has_name_on() {
  if constexpr (!std::is_class_v<T>) {
    return false;
  } else if constexpr (std::is_final_v<T>) {
    return requires { &T::on; };  // An overloaded `on` of a final class can only be asked for event by event.
  } else {
    return !requires { &with_name_probe<T>::on; };
  }
}

/// Converts to `Event` in every form in which a handler could ask for it.
template <class Event>
struct only {
  template <class T>
    requires std::same_as<std::remove_const_t<T>, Event>
  operator T&() const;
  template <class T>
    requires std::same_as<std::remove_const_t<T>, Event>
  operator T&&() const;
  template <class T>
    requires std::same_as<std::remove_const_t<T>, Event>
  operator T*() const;
};

struct anything {
  template <class T>
  operator T&() const;
  template <class T>
  operator T&&() const;
};

/// Converts to whatever is neither one of the known events nor a base of one.
template <class... Known>
struct anything_but {
  template <class T>
  static constexpr bool unknown =
      !((std::is_base_of_v<std::remove_cv_t<T>, Known> || std::same_as<std::remove_cv_t<T>, Known>) || ...);
  template <class T>
    requires unknown<T>
  operator T&() const;
  template <class T>
    requires unknown<T>
  operator T&&() const;
};

struct unrelated {};

/// An `on` for `Event` with more parameters exists.
template <class Callback, class Event>
concept meant_for_with_more = requires(Callback& c, only<Event> e, anything a) { c.on(e, a); } ||
                              requires(Callback& c, only<Event> e, anything a) { c.on(a, e); } ||
                              requires(Callback& c, only<Event> e, anything a) { c.on(e, a, a); } ||
                              requires(Callback& c, only<Event> e, anything a) { c.on(a, e, a); } ||
                              requires(Callback& c, only<Event> e, anything a) { c.on(a, a, e); } ||
                              requires(Callback& c, only<Event> e, anything a) { c.on(e, a, a, a); } ||
                              requires(Callback& c, only<Event> e, anything a) { c.on(a, a, a, e); };

/// A template whose parameter is `E&`: it takes `const Event&` as well as `Event&`.
template <class Callback, class Event>
concept takes_any_constness =
    requires {
      static_cast<void (Callback::*)(const Event&)>(&Callback::template on<const Event>);
      static_cast<void (Callback::*)(Event&)>(&Callback::template on<Event>);
    };

/// One `on(const Event&)` and one `on(Event&)`: only one of them could ever be called.
template <class Callback, class Event>
concept reads_and_writes = (reads<Callback, Event> && !reads<Callback, unrelated> &&
                            !takes_any_constness<Callback, Event>) &&
                           requires {
                             static_cast<void (Callback::*)(const Event&)>(&Callback::on);
                             static_cast<void (Callback::*)(Event&)>(&Callback::on);
                           };

struct no_handler {};
template <class T>
struct with_fallback : T {
  using T::on;
  no_handler on(...);
};

template <class Callback>
concept has_on_as_member_object =
    requires { requires std::is_member_object_pointer_v<decltype(&Callback::on)>; };

/// Whether some `on` may take these arguments, be it one of several. Of a final class it can't be told.
template <class Callback, class... Arguments>
consteval bool may_take() {
  if constexpr (std::is_final_v<Callback> || has_on_as_member_object<Callback>) {
    return true;
  } else if constexpr (!has_name_on<Callback>()) {
    return false;
  } else {
    return !requires(with_fallback<Callback> & c, Arguments... arguments) {
              { c.on(arguments...) } -> std::same_as<no_handler>;
            };
  }
}

/// Asked once a callback, so that the many questions behind it are not asked for each of its events.
template <class Callback>
inline constexpr bool may_take_several =
    may_take<Callback, anything, anything>() || may_take<Callback, anything, anything, anything>() ||
    may_take<Callback, anything, anything, anything, anything>() ||
    may_take<Callback, anything, anything, anything, anything, anything>() ||
    may_take<Callback, anything, anything, anything, anything, anything, anything>();

/// An `on` for `Event` exists, whether or not it can be called with one.
template <class Callback, class Event>
concept meant_for = requires(Callback& c, only<Event> e) { c.on(e); } ||
                    (may_take_several<Callback> && meant_for_with_more<Callback, Event>);

/// Has no answer for a private `on`: the compiler names it and its event, which is the error that we want.
template <class Callback>
consteval bool has_accessible_handlers() {
  if constexpr (has_name_on<Callback>() && !std::is_final_v<Callback> && !has_on_as_member_object<Callback>)
    static_cast<void>(sizeof(with_fallback<Callback>));
  return true;
}

/// Whether `Callback` has an `on` of one parameter that is for none of the known events. The fallback
/// overload is chosen only where no other fits, and two that fit are ambiguous: so the answer is exact for
/// any number of them.
template <class Callback, class... Known>
consteval bool has_foreign_handler() {
  if constexpr (Handles<Callback, unrelated>) {
    return false;
  } else if constexpr (std::is_final_v<Callback>) {
    return requires(Callback & c, anything_but<Known...> a) { c.on(a); };
  } else if constexpr (!has_name_on<Callback>() || has_on_as_member_object<Callback>) {
    return false;
  } else {
    return !requires(with_fallback<Callback> & c, anything_but<Known...> a) {
              { c.on(a) } -> std::same_as<no_handler>;
            };
  }
}

template <class F>
struct parameter_of {};
template <class R, class C, class A>
struct parameter_of<R (C::*)(A)> : std::remove_cvref<A> {};
template <class R, class C, class A>
struct parameter_of<R (C::*)(A) const> : std::remove_cvref<A> {};
template <class R, class C, class A>
struct parameter_of<R (C::*)(A) noexcept> : std::remove_cvref<A> {};
template <class R, class C, class A>
struct parameter_of<R (C::*)(A) const noexcept> : std::remove_cvref<A> {};
template <class R, class A>
struct parameter_of<R (*)(A)> : std::remove_cvref<A> {};
template <class R, class A>
struct parameter_of<R (*)(A) noexcept> : std::remove_cvref<A> {};

/// The events that a callback names itself: `using handles = events<...>`, or else the one of its only `on`.
template <class Callback>
struct declared_events {
  using type = events<>;
};
template <class Callback>
  requires requires { typename Callback::handles; }
struct declared_events<Callback> {
  using type = typename Callback::handles;
};
template <class Callback>
  requires(!requires { typename Callback::handles; }) &&
          requires {
            typename parameter_of<decltype(&Callback::on)>::type;
          } && std::is_class_v<typename parameter_of<decltype(&Callback::on)>::type>
struct declared_events<Callback> {
  using type = events<typename parameter_of<decltype(&Callback::on)>::type>;
};
template <class Callback>
using declared_events_t = typename declared_events<Callback>::type;

template <class Callback>
concept declares_events = requires { typename Callback::handles; };

template <class T>
struct is_reference_wrapper : std::false_type {};
template <class T>
struct is_reference_wrapper<std::reference_wrapper<T>> : std::true_type {};

template <class Callback>
concept allows_duplicates = requires { requires Callback::allows_duplicates; };

/// Passes events on as they come, so what it reads and writes is another's matter.
template <class Callback>
concept forwards_events = requires { requires Callback::forwards_events; };

template <class T, class... List>
inline constexpr int count_of = (0 + ... + int{std::same_as<T, List>});

}  // namespace detail
}  // namespace etude
