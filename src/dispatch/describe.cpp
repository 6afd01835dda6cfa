#include "etude/dispatch/describe.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace etude::inline v0 {
namespace detail {

std::vector<HandledEvent> handled_events(std::span<const KnownEvent> known,
                                         std::span<const CallbackHandling> callbacks) {
  std::vector<HandledEvent> handled;
  for (std::size_t i = 0; i < known.size(); ++i) {
    HandledEvent each{known[i].name, {}};
    for (const auto& callback : callbacks)
      if (callback.runtime_callbacks)
        std::ranges::move(callback.runtime_callbacks->handlers(known[i].index),
                          std::back_inserter(each.callbacks));
      else if (callback.by_event[i] != Handling::none)
        each.callbacks.emplace_back(callback.callback, callback.by_event[i] == Handling::writes);
    if (!each.callbacks.empty()) handled.push_back(std::move(each));
  }
  return handled;
}

std::vector<EventHandlers> in_words(const std::vector<HandledEvent>& handled) {
  std::vector<EventHandlers> result;
  for (const auto& [event, callbacks] : handled) {
    auto& names = result.emplace_back(EventHandlers{event, {}}).callbacks;
    for (const auto& [name, writes] : callbacks) names.push_back(writes ? name + " (writes)" : name);
  }
  return result;
}

}  // namespace detail

std::string describe(const std::vector<EventHandlers>& handled) {
  std::string text;
  for (const auto& each : handled)
    text += fmt::format("{:<20} {}\n", each.event, fmt::join(each.callbacks, ", "));
  return text;
}

}  // namespace etude::inline v0
