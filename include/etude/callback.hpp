#pragma once

#include <concepts>
#include <functional>
#include <type_traits>
#include <utility>

/// The concepts that define a callback, used by the handler and its checks.
namespace etude::inline v0 {

/// A list of event types.
template <class... Events>
struct events {};

/// A list of callback types, for `using runs_after = etude::callbacks<...>` and `runs_before`.
template <class... Callbacks>
struct callbacks {};

class RuntimeCallbacks;

namespace mistake {
template <class... WhereAndType>
struct a_plain_class_is_expected_so_leave_out_const_and_reference;
}  // namespace mistake

namespace detail {

/// Requiring a type that isn't defined is how mistakes are reported; see callback_checks.hpp.
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

/// `Callback` has an `on` that can be called with `Event`. This instantiates the body of a handler with a
/// deduced return type, so declare the return type (`void`).
template <class Callback, class Event>
concept Handles = detail::reads<Callback, Event> || detail::takes_mutable<Callback, Event>;

/// `Callback` may change the payload of `Event`: its `on` takes `Event&` rather than `const Event&`.
template <class Callback, class Event>
concept Writes = detail::takes_mutable<Callback, Event> && (!detail::reads<Callback, Event>);

namespace detail {

struct name_probe {
  void on();
};
template <class T>
struct with_name_probe : T, name_probe {};

/// Whether `on` names anything in T: a function of any form, including private or inherited ones. Two bases
/// that both have the name make it ambiguous, which is the only way to detect a private one.
template <class T>
consteval bool has_name_on() {
  if constexpr (!std::is_class_v<T>) {
    return false;
  } else if constexpr (std::is_final_v<T>) {
    return requires { &T::on; };  // For a final class, an overloaded `on` can only be checked event by event.
  } else {
    return !requires { &with_name_probe<T>::on; };
  }
}

/// Converts to `Event` in every form in which a handler may take it.
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

/// Converts to anything that is neither a known event nor a base of one.
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

/// `Callback` has an `on` for `Event` with additional parameters.
template <class Callback, class Event>
concept meant_for_with_more = requires(Callback& c, only<Event> e, anything a) { c.on(e, a); } ||
                              requires(Callback& c, only<Event> e, anything a) { c.on(a, e); } ||
                              requires(Callback& c, only<Event> e, anything a) { c.on(e, a, a); } ||
                              requires(Callback& c, only<Event> e, anything a) { c.on(a, e, a); } ||
                              requires(Callback& c, only<Event> e, anything a) { c.on(a, a, e); } ||
                              requires(Callback& c, only<Event> e, anything a) { c.on(e, a, a, a); } ||
                              requires(Callback& c, only<Event> e, anything a) { c.on(a, a, a, e); };

template <class Pointer>
inline constexpr bool points_to_object =
    std::is_member_object_pointer_v<Pointer> ||
    (std::is_pointer_v<Pointer> && std::is_object_v<std::remove_pointer_t<Pointer>>);

/// `on` is an object that is called like a function, such as a `std::function`.
template <class Callback>
concept has_on_as_object = requires { requires points_to_object<decltype(&Callback::on)>; };

/// A template whose parameter is `E&`: it accepts both `const Event&` and `Event&`.
template <class Callback, class Event>
concept takes_any_constness = !
has_on_as_object<Callback>&& requires {
                               static_cast<void (Callback::*)(const Event&)>(
                                   &Callback::template on<const Event>);
                               static_cast<void (Callback::*)(Event&)>(&Callback::template on<Event>);
                             };

/// Both `on(const Event&)` and `on(Event&)` exist, but only one of them could ever be called.
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

/// Whether some `on`, possibly overloaded, may take these arguments. Unknown for final classes.
template <class Callback, class... Arguments>
consteval bool may_take() {
  if constexpr (std::is_final_v<Callback> || has_on_as_object<Callback>) {
    return true;
  } else if constexpr (!has_name_on<Callback>()) {
    return false;
  } else {
    return !requires(with_fallback<Callback> & c, Arguments... arguments) {
              { c.on(arguments...) } -> std::same_as<no_handler>;
            };
  }
}

/// Checked once per callback, so that the many checks behind it aren't repeated for each event.
template <class Callback>
inline constexpr bool may_take_several =
    may_take<Callback, anything, anything>() || may_take<Callback, anything, anything, anything>() ||
    may_take<Callback, anything, anything, anything, anything>() ||
    may_take<Callback, anything, anything, anything, anything, anything>() ||
    may_take<Callback, anything, anything, anything, anything, anything, anything>();

/// An `on` for `Event` exists, whether or not it is callable.
template <class Callback, class Event>
concept meant_for = requires(Callback& c, only<Event> e) { c.on(e); } ||
                    (may_take_several<Callback> && meant_for_with_more<Callback, Event>);

template <class T>
struct with_on_of : T {
  using T::on;
};

/// Ill-formed for a private `on`: the compiler's error names it and its event, as intended.
template <class Callback>
consteval bool has_accessible_handlers() {
  if constexpr (has_name_on<Callback>() && !std::is_final_v<Callback>)
    static_cast<void>(sizeof(with_on_of<Callback>));
  return true;
}

/// Whether `Callback` has a one-parameter `on` for something other than the known events. The fallback
/// overload is chosen only if nothing else matches, and two matches are ambiguous, so the answer is exact for
/// any number of overloads.
template <class Callback, class... Known>
consteval bool has_foreign_handler() {
  if constexpr (Handles<Callback, unrelated>) {
    return false;
  } else if constexpr (std::is_final_v<Callback> || has_on_as_object<Callback>) {
    return requires(Callback & c, anything_but<Known...> a) { c.on(a); };
  } else if constexpr (!has_name_on<Callback>()) {
    return false;
  } else {
    return !requires(with_fallback<Callback> & c, anything_but<Known...> a) {
              { c.on(a) } -> std::same_as<no_handler>;
            };
  }
}

template <class F>
struct parameter_of {};
template <class R, class C, class A, bool is_noexcept>
struct parameter_of<R (C::*)(A) noexcept(is_noexcept)> : std::type_identity<A> {};
template <class R, class C, class A, bool is_noexcept>
struct parameter_of<R (C::*)(A) const noexcept(is_noexcept)> : std::type_identity<A> {};
template <class R, class A, bool is_noexcept>
struct parameter_of<R (*)(A) noexcept(is_noexcept)> : std::type_identity<A> {};

template <class On>
consteval auto parameter_of_object() {
  if constexpr (requires { &On::operator(); })
    return parameter_of<decltype(&On::operator())>{};
  else
    return parameter_of<On>{};
}

/// Returns an object whose member `type` is the parameter type of the only `on`, with reference and const.
/// Returns nothing if `on` is overloaded.
template <class Callback>
consteval auto only_parameter() {
  if constexpr (has_on_as_object<Callback>)
    return parameter_of_object<std::remove_cvref_t<decltype(std::declval<Callback&>().on)>>();
  else if constexpr (requires { &Callback::on; })
    return parameter_of<decltype(&Callback::on)>{};
}
template <class Callback>
using only_parameter_t = typename decltype(only_parameter<Callback>())::type;

/// The events that a callback declares with `using handles = events<...>`, or else the event of its only
/// `on`. With `events<>` a callback needn't handle anything: other code reaches its state through the
/// trainer.
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
          requires { requires std::is_class_v<std::remove_cvref_t<only_parameter_t<Callback>>>; }
struct declared_events<Callback> {
  using type = events<std::remove_cvref_t<only_parameter_t<Callback>>>;
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

/// The callback runs after all other callbacks, including those added at run time.
template <class Callback>
concept runs_last = requires { requires Callback::runs_last; };

/// Forwards all events to the callbacks that it holds, which decide what they read and write.
template <class Callback>
concept forwards_events = std::same_as<Callback, RuntimeCallbacks>;

template <class Callback>
concept has_reads_parameters = requires(const Callback& callback) {
                                 { callback.reads_parameters() } -> std::same_as<bool>;
                               };

/// Whether a callback reads the model's parameters between steps, when ShardedDataParallel<3> keeps none of
/// them whole. Calls its method `bool reads_parameters() const`; false if it has none.
template <class Callback>
bool reads_parameters(const Callback& callback) {
  if constexpr (has_reads_parameters<Callback>)
    return callback.reads_parameters();
  else
    return false;
}

template <class T, class... List>
inline constexpr int count_of = (0 + ... + int{std::same_as<T, List>});

}  // namespace detail
}  // namespace etude::inline v0
