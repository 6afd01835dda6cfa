#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include "etude/callback.hpp"
#include "etude/dispatch/callback_handler.hpp"
#include "etude/dispatch/callback_names.hpp"
#include "etude/dispatch/runtime_callbacks.hpp"

namespace etude::inline v0 {

namespace mistake {
template <class Callback>
struct callback_has_no_default_constructor_so_pass_it_to_the_trainer;
template <class Callback>
struct Without_takes_a_default_callback_of_the_trainer_so_remove;
}  // namespace mistake

/// A policy: the trainer has only the listed callbacks. Without `DefaultFlowCallback` nothing is logged,
/// evaluated or saved unless a callback requests it.
struct NoDefaultCallbacks {
  using etude_policy = void;
};

/// A policy that leaves some default callbacks out: `etude::Without<etude::PrinterCallback>`.
template <class... Defaults>
struct Without {
  using etude_policy = void;
};

/// A policy for a trainer that is embedded in a program: it prints nothing to standard output, handles no
/// signals, and leaves the settings of the process as they are, including LibTorch's default generators. It
/// has none of the default callbacks that print; callbacks in the list still print. Messages go to the
/// handler given to `set_message_handler`. Settings that an argument requests (`full_determinism`, `tf32`)
/// are still applied.
struct Quiet {
  using etude_policy = void;
};

/// Passed with the callbacks: `etude::Trainer trainer({...}, etude::quiet, MyCallback{})`.
inline constexpr Quiet quiet;

/// A policy that lists the program's events, and so closes the set of events: it is a compile error to
/// handle, or to pass to `call_event`, any event that is neither listed nor raised by the trainer itself.
template <class... Events>
struct Raises {
  static_assert(
      (detail::expect<(std::is_class_v<Events> && std::same_as<Events, std::remove_cv_t<Events>>),
                      mistake::a_plain_class_is_expected_so_leave_out_const_and_reference<Events>>() &&
       ...));
  using etude_policy = void;
  using raised = events<Events...>;
};

namespace detail {

template <class T>
concept policy = requires { typename T::etude_policy; };

template <template <class...> class List, class... Parts>
struct concat {
  using type = List<>;
};
template <template <class...> class List, class... A>
struct concat<List, List<A...>> {
  using type = List<A...>;
};
template <template <class...> class List, class... A, class... B, class... Rest>
struct concat<List, List<A...>, List<B...>, Rest...> : concat<List, List<A..., B...>, Rest...> {};

template <class T, bool Keep>
using keep_if = std::conditional_t<Keep, callbacks<T>, callbacks<>>;

template <class T>
struct raised_by {
  using type = events<>;
};
template <class... Events>
struct raised_by<Raises<Events...>> {
  using type = events<Events...>;
};

template <class T, class Default>
inline constexpr bool leaves_out = std::same_as<T, NoDefaultCallbacks>;
template <class... Left, class Default>
inline constexpr bool leaves_out<Without<Left...>, Default> = (std::same_as<Left, Default> || ...);

template <class T, class... Defaults>
consteval bool check_left_out(callbacks<Defaults...>) {
  if constexpr (is_list_of<T, Without>)
    return []<class... Left>(Without<Left...>*) {
      return (expect<(count_of<Left, Defaults...> > 0),
                     mistake::Without_takes_a_default_callback_of_the_trainer_so_remove<Left>>() &&
              ...);
    }(static_cast<T*>(nullptr));
  return true;
}

template <class T>
inline constexpr bool closes_world = false;
template <class... Events>
inline constexpr bool closes_world<Raises<Events...>> = true;

/// The callbacks given to a trainer, which takes them by value.
template <class... Given>
std::tuple<std::remove_cvref_t<Given>...> take_given(Given&&... given) {
  (check_not_sliced(std::as_const(given)), ...);
  return std::tuple<std::remove_cvref_t<Given>...>(std::forward<Given>(given)...);
}

/// The callback with index `Rank` among the callbacks of its type in `given`.
template <class Callback, std::size_t Rank, std::size_t I = 0, class Given>
Callback& nth_of(Given& given) {
  if constexpr (!std::same_as<std::tuple_element_t<I, Given>, Callback>)
    return nth_of<Callback, Rank, I + 1>(given);
  else if constexpr (Rank > 0)
    return nth_of<Callback, Rank - 1, I + 1>(given);
  else
    return std::get<I>(given);
}

/// The callback for one element of a list: the next given callback of its type, or else a new one.
template <class Callback, std::size_t Rank, class... Given>
Callback take_callback(std::tuple<Given...>& given) {
  if constexpr (Rank < count_of<Callback, Given...>) {
    return std::move(nth_of<Callback, Rank>(given));
  } else if constexpr (expect<std::is_default_constructible_v<Callback>,
                              mistake::callback_has_no_default_constructor_so_pass_it_to_the_trainer<
                                  Callback>>()) {
    return Callback{};
  }
}

template <class List>
struct handler_of;
template <class... Callbacks>
struct handler_of<callbacks<Callbacks...>> {
  using type = CallbackHandler<Callbacks...>;

  template <class... Given>
  static type make(std::tuple<Given...> given) {
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      constexpr auto ranks = ranks_of<Callbacks...>();
      return type(take_callback<Callbacks, ranks[I]>(given)...);
    }
    (std::index_sequence_for<Callbacks...>{});
  }
};
template <>
struct handler_of<callbacks<>> {
  using type = CallbackHandler<>;
  template <class Given>
  static type make(Given) {
    return {};
  }
};

template <class Events, bool Closed, class List>
struct checks_of;
template <class Events, bool Closed, class... Callbacks>
struct checks_of<Events, Closed, callbacks<Callbacks...>> : CallbackChecks<Events, Closed, Callbacks...> {};

/// Whether a trainer with this `List` has the default callback `Default`.
template <class Default, class... List>
inline constexpr bool wants_default =
    !((leaves_out<List, Default> || std::is_base_of_v<Default, List>) || ...);

/// The default callbacks that a trainer with this `List` has.
template <class Defaults, class... List>
struct defaults_of;
template <class... Defaults, class... List>
struct defaults_of<callbacks<Defaults...>, List...>
    : concat<callbacks, keep_if<Defaults, wants_default<Defaults, List...>>...> {};
template <class Defaults, class... List>
using defaults_for = typename defaults_of<Defaults, List...>::type;

}  // namespace detail

/// Interprets the type list of a trainer. Callbacks run in this order: `Defaults::first`, the list,
/// `Defaults::last`, the callbacks added at run time, and finally the callbacks in the list with `static
/// constexpr bool runs_last = true`. A callback in the list replaces a default callback of its type or of one
/// of its bases. `Defaults::events` are the events that such a trainer always raises.
template <class Defaults, class... List>
struct Composition {
  static constexpr bool closed = (detail::closes_world<List> || ...);
  static constexpr bool has_runtime_callbacks = (std::same_as<List, RuntimeCallbacks> || ...);

  using known_events = typename detail::concat<events, typename Defaults::events,
                                               typename detail::raised_by<List>::type...>::type;
  static_assert((detail::check_left_out<List>(typename detail::concat<callbacks, typename Defaults::first,
                                                                      typename Defaults::last>::type{}) &&
                 ...));
  /// The callbacks that run before the ones added at run time.
  using static_callbacks =
      typename detail::concat<callbacks, detail::defaults_for<typename Defaults::first, List...>,
                              detail::keep_if<List, !detail::policy<List> && !detail::runs_last<List> &&
                                                        !std::same_as<List, RuntimeCallbacks>>...,
                              detail::defaults_for<typename Defaults::last, List...>>::type;
  using callbacks_list = typename detail::concat<callbacks, static_callbacks,
                                                 detail::keep_if<RuntimeCallbacks, has_runtime_callbacks>,
                                                 detail::keep_if<List, detail::runs_last<List>>...>::type;

  using handler = typename detail::handler_of<callbacks_list>::type;
  using maker = detail::handler_of<callbacks_list>;
  using checks = detail::checks_of<known_events, closed, callbacks_list>;
};

}  // namespace etude::inline v0
