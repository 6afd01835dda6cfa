#pragma once

#include <array>
#include <boost/hana/at.hpp>
#include <boost/hana/tuple.hpp>
#include <cstddef>
#include <exception>
#include <string_view>
#include <type_traits>
#include <utility>

#include "etude/callback.hpp"
#include "etude/dispatch/callback_checks.hpp"
#include "etude/reflect/type_name.hpp"

namespace etude::inline v0 {

/// The origin of an exception: the callback that threw it and the event being handled.
struct ErrorOrigin {
  std::exception_ptr error;
  std::string_view callback;
  std::string_view event;
};

namespace detail {

/// Stored outside the handler, so that recording an origin doesn't change the handler's instructions.
inline ErrorOrigin& last_origin() {
  thread_local ErrorOrigin origin;
  return origin;
}

[[gnu::cold, gnu::noinline]] inline void note_origin(std::string_view callback, std::string_view event) {
  auto error = std::current_exception();
  // The innermost callback sees the exception first; the outer ones only forward it.
  if (last_origin().error != error) last_origin() = {std::move(error), callback, event};
}

template <class Callback, class Event>
[[noreturn, gnu::cold, gnu::noinline]] void rethrow_from() {
  note_origin(short_type_name<Callback>(), short_type_name<Event>());
  throw;
}

template <class Callback, class Event>
[[gnu::always_inline]] constexpr void deliver(Callback& callback, Event& event) {
  try {
    if constexpr (reads<Callback, Event> && !forwards_events<Callback>)
      callback.on(std::as_const(event));
    else
      callback.on(event);
  } catch (...) {
    rethrow_from<Callback, std::remove_const_t<Event>>();
  }
}

/// Like `deliver`, but passes exceptions to `on_error()`, called inside the catch block, and keeps
/// `scope(name)` alive meanwhile. Never inlined: all trainers with the callback share it.
template <class Callback, class Event, class OnError, class Scope>
[[gnu::noinline]] void deliver_to_all(Callback& callback, Event& event, OnError& on_error, Scope& scope) {
  [[maybe_unused]] const auto whole = scope(short_type_name<Callback>());
  if constexpr (forwards_events<Callback>) {
    callback.on_all(event, on_error);
  } else {
    try {
      deliver(callback, event);
    } catch (...) {
      on_error();
    }
  }
}

struct nothing_to_deliver {
  void operator()() const {}
};

/// A callback that wraps the calls of all other callbacks in its list, to measure their time.
template <class Callback>
concept TimesCallbacks =
    requires(Callback& callback, std::string_view name) { callback.time(name, name, nothing_to_deliver{}); };

/// The index of the first true value, or the number of values if none is true.
template <bool... Found>
consteval std::size_t first_place() {
  std::size_t place = 0;
  static_cast<void>(((Found || (++place, false)) || ...));
  return place;
}

/// The indices of the callbacks that handle `Event`, so that the others cost no compile time.
template <class Event, class... Callbacks>
class HandlersOf {
  static constexpr std::array<bool, sizeof...(Callbacks)> handles{Handles<Callbacks, Event>...};

  static consteval std::size_t place(std::size_t nth) {
    std::size_t i = 0;
    while (!handles[i] || nth-- > 0) ++i;
    return i;
  }
  template <std::size_t... Nth>
  static auto list(std::index_sequence<Nth...>) -> std::index_sequence<place(Nth)...>;

 public:
  using places = decltype(list(std::make_index_sequence<(std::size_t{Handles<Callbacks, Event>} + ...)>{}));
};

}  // namespace detail

/// Returns and clears the origin of `error`; both names are empty if no callback threw it.
inline ErrorOrigin take_origin(const std::exception_ptr& error) {
  auto origin = std::exchange(detail::last_origin(), {});
  if (origin.error != error) return {error, {}, {}};
  return origin;
}

/// Holds callbacks by value and raises events to them: `call_event` calls each callback's `on` directly, in
/// list order, unrolled at compile time, without virtual calls, lookups or allocations. An event that nobody
/// handles costs nothing.
///
/// A callback's exception ends the event and propagates unchanged; `take_origin` returns which callback threw
/// it.
template <class... Callbacks>
class CallbackHandler {
  static_assert(detail::check_list<Callbacks...>());

 public:
  constexpr explicit CallbackHandler(Callbacks... callbacks) : callbacks_(std::move(callbacks)...) {}

  /// Whether any callback handles `Event`.
  template <class Event>
  static constexpr bool handles = (Handles<Callbacks, Event> || ...);
  /// Whether any callback may change `Event`.
  template <class Event>
  static constexpr bool writes = (Writes<Callbacks, Event> || ...);

  /// Returns true. Doesn't compile if `Event` can't be raised to these callbacks; the error says why.
  template <class Event>
  static consteval bool may_raise() {
    return detail::check_raised<Event>() && detail::check_event<Event, Callbacks...>();
  }

  /// Raises `event`, which may be any struct. Handlers that take `Event&` may change it, and the caller can
  /// read it afterwards.
  template <class Event>
  [[gnu::always_inline]] constexpr void call_event(Event&& event) {
    using Plain = std::remove_cvref_t<Event>;
    static_assert(may_raise<Plain>());
    if constexpr (std::is_const_v<std::remove_reference_t<Event>>)
      static_assert(
          (detail::expect<(!Writes<Callbacks, Plain> || detail::forwards_events<Callbacks>),
                          mistake::event_is_raised_as_const_but_a_callback_writes_it<CallbackHandler,
                                                                                     Callbacks, Plain>>() &&
           ...));
    if constexpr (handles<Plain>)
      // By index and always inlined: with `hana::unpack`, compilers keep a call once five callbacks may
      // throw.
      [&]<std::size_t... I>(std::index_sequence<I...>) __attribute__((always_inline)) {
        if constexpr (is_timed)
          (timed<I, Plain>([&] { detail::deliver(boost::hana::at_c<I>(callbacks_), event); }), ...);
        else
          (detail::deliver(boost::hana::at_c<I>(callbacks_), event), ...);
      }
    (typename detail::HandlersOf<Plain, Callbacks...>::places{});
  }

  /// Raises `event` to every callback even if some throw; calls `on_error()` inside the catch block of each
  /// exception. Used for end events, and for events that report an error.
  template <class Event, class OnError>
  void call_event_to_all(Event& event, OnError on_error) {
    call_event_to_all(event, on_error, [](std::string_view) { return 0; });
  }

  /// The same, but keeps `scope(name)` alive while the callback of that name handles the event.
  template <class Event, class OnError, class Scope>
  [[gnu::always_inline]] void call_event_to_all(Event& event, OnError on_error, Scope scope) {
    static_assert(may_raise<Event>());
    if constexpr (handles<Event>)
      [&]<std::size_t... I>(std::index_sequence<I...>) __attribute__((always_inline)) {
        if constexpr (is_timed)
          (timed<I, Event>(
               [&] { detail::deliver_to_all(boost::hana::at_c<I>(callbacks_), event, on_error, scope); }),
           ...);
        else
          (detail::deliver_to_all(boost::hana::at_c<I>(callbacks_), event, on_error, scope), ...);
      }
    (typename detail::HandlersOf<Event, Callbacks...>::places{});
  }

  /// The first callback of that type.
  template <class Callback>
  constexpr Callback& first() {
    return boost::hana::at_c<detail::first_place<std::is_same_v<Callback, Callbacks>...>()>(callbacks_);
  }

  /// The callbacks, in order, as a `boost::hana::tuple`.
  constexpr auto& callbacks() { return callbacks_; }
  constexpr const auto& callbacks() const { return callbacks_; }

 private:
  static constexpr auto clock = detail::first_place<detail::TimesCallbacks<Callbacks>...>();
  static constexpr bool is_timed = clock < sizeof...(Callbacks);

  template <std::size_t I, class Event, class Deliver>
  void timed(Deliver deliver) {
    if constexpr (clock == I) {
      deliver();
    } else {
      using Callback = std::remove_cvref_t<decltype(boost::hana::at_c<I>(callbacks_))>;
      boost::hana::at_c<clock>(callbacks_)
          .time(short_type_name<Callback>(), short_type_name<Event>(), deliver);
    }
  }

  boost::hana::tuple<Callbacks...> callbacks_;
};

template <>
class CallbackHandler<> {
 public:
  template <class Event>
  static constexpr bool handles = false;
  template <class Event>
  static constexpr bool writes = false;
  template <class Event>
  static consteval bool may_raise() {
    return detail::check_raised<Event>();
  }
  template <class Event>
  constexpr void call_event(Event&&) {
    static_assert(may_raise<std::remove_cvref_t<Event>>());
  }
  template <class Event, class OnError>
  constexpr void call_event_to_all(Event&, OnError) {}
  template <class Event, class OnError, class Scope>
  constexpr void call_event_to_all(Event&, OnError, Scope) {}
  constexpr boost::hana::tuple<> callbacks() const { return {}; }
};

}  // namespace etude::inline v0
