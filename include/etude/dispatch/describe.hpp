#pragma once

#include <array>
#include <boost/hana/unpack.hpp>
#include <concepts>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/callback.hpp"
#include "etude/dispatch/callback_handler.hpp"
#include "etude/dispatch/runtime_callbacks.hpp"
#include "etude/reflect/type_name.hpp"

namespace etude::inline v0 {
namespace detail {

enum class Handling : unsigned char { none, reads, writes };

/// Says how a callback handles each event of a list. This is a table, because a function for each callback
/// and event would be most of a trainer's code.
struct CallbackHandling {
  std::string_view callback;
  const Handling* by_event;
  const RuntimeCallbacks* runtime_callbacks = nullptr;  // used instead of the members above
};

template <class Callback, class Event>
consteval Handling handling() {
  if constexpr (!Handles<Callback, Event>) return Handling::none;
  return Writes<Callback, Event> ? Handling::writes : Handling::reads;
}

template <class Callback, class... Events>
inline constexpr std::array<Handling, sizeof...(Events)> handlings{handling<Callback, Events>()...};

template <class Callback, class... Events>
constexpr const Handling* handlings_of(events<Events...>) {
  return handlings<Callback, Events...>.data();
}

template <class Callback, class... Events>
CallbackHandling handling_of(const Callback& callback, events<Events...> which) {
  if constexpr (std::same_as<Callback, RuntimeCallbacks>)
    return {{}, nullptr, &callback};
  else
    return {short_type_name<Callback>(), handlings_of<Callback>(which)};
}

struct KnownEvent {
  std::string_view name;
  std::size_t index;  // among run-time callbacks
};

template <class... Events>
std::span<const KnownEvent> known_events(events<Events...>) {
  static const std::array<KnownEvent, sizeof...(Events)> known{
      KnownEvent{short_type_name<Events>(), event_index<Events>()}...};
  return known;
}

/// An event that is handled, the names of its handlers in order, and whether each may change it.
struct HandledEvent {
  std::string_view event;
  std::vector<std::pair<std::string, bool>> callbacks;
};

std::vector<HandledEvent> handled_events(std::span<const KnownEvent> known,
                                         std::span<const CallbackHandling> callbacks);

}  // namespace detail

/// An event, and the callbacks that handle it in the order in which they run; " (writes)" follows the name of
/// a callback that may change it.
struct EventHandlers {
  std::string_view event;
  std::vector<std::string> callbacks;
};

namespace detail {
std::vector<EventHandlers> in_words(const std::vector<HandledEvent>& handled);
}

/// The events that callbacks handle.
template <class... Callbacks, class... Events>
std::vector<EventHandlers> event_handlers(const CallbackHandler<Callbacks...>& handler, events<Events...>) {
  return boost::hana::unpack(handler.callbacks(), [](const Callbacks&... each) {
    const std::array<detail::CallbackHandling, sizeof...(Callbacks)> callbacks{
        detail::handling_of(each, events<Events...>{})...};
    return detail::in_words(detail::handled_events(detail::known_events(events<Events...>{}), callbacks));
  });
}

/// One line per handled event: its name, then its callbacks in the order in which they run.
std::string describe(const std::vector<EventHandlers>& handled);

}  // namespace etude::inline v0
