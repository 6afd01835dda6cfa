#pragma once

#include <boost/hana/unpack.hpp>
#include <string>
#include <string_view>
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

/// Adds a line, unless nobody handles the event.
void describe_event(std::string_view event, const std::vector<std::string>& names, std::string& text);

}  // namespace detail

/// One line per handled event: its name, then its callbacks in the order in which they run.
template <class... Callbacks, class... Events>
std::string describe(const CallbackHandler<Callbacks...>& handler, events<Events...>) {
  std::string text;
  const auto line = [&]<class Event>() {
    std::vector<std::string> names;
    boost::hana::unpack(handler.callbacks(),
                        [&](const auto&... each) { (detail::describe_handlers<Event>(each, names), ...); });
    detail::describe_event(short_type_name<Event>(), names, text);
  };
  (line.template operator()<Events>(), ...);
  return text;
}

}  // namespace etude::inline v0

#ifndef ETUDE_COMPILED
#include "etude/dispatch/impl/describe.ipp"
#endif
