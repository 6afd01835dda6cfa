#pragma once

#include <boost/hana/unpack.hpp>
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

template <class Event, class Callback>
void describe_handlers(const Callback& callback, std::vector<std::string>& names) {
  if constexpr (std::same_as<Callback, RuntimeCallbacks>) {
    for (const auto& [name, writes] : callback.template handlers<Event>())
      names.push_back(writes ? name + " (writes)" : name);
  } else if constexpr (Handles<Callback, Event>) {
    names.push_back(std::string(short_type_name<Callback>()) + (Writes<Callback, Event> ? " (writes)" : ""));
  }
}

}  // namespace detail

/// An event, and the callbacks that handle it in the order in which they run; " (writes)" follows the name of
/// one that may change it.
struct EventHandlers {
  std::string_view event;
  std::vector<std::string> callbacks;
};

/// The events that callbacks handle.
template <class... Callbacks, class... Events>
std::vector<EventHandlers> event_handlers(const CallbackHandler<Callbacks...>& handler, events<Events...>) {
  std::vector<EventHandlers> handled;
  const auto add = [&]<class Event>() {
    std::vector<std::string> names;
    boost::hana::unpack(handler.callbacks(),
                        [&](const auto&... each) { (detail::describe_handlers<Event>(each, names), ...); });
    if (!names.empty()) handled.push_back({short_type_name<Event>(), std::move(names)});
  };
  (add.template operator()<Events>(), ...);
  return handled;
}

/// One line per handled event: its name, then its callbacks in the order in which they run.
std::string describe(const std::vector<EventHandlers>& handled);

}  // namespace etude::inline v0

#ifndef ETUDE_COMPILED
#include "etude/dispatch/impl/describe.ipp"
#endif
