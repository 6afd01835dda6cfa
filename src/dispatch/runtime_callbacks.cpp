#include "etude/dispatch/runtime_callbacks.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <string_view>
#include <typeindex>
#include <vector>

#include "etude/base/error.hpp"

namespace etude::inline v0::detail {

void RuntimeState::let_go() {
  has_removed = false;
  // These are destroyed once the lists are consistent again, because their destructors may remove other
  // callbacks.
  std::vector<std::shared_ptr<RuntimeEntry>> dying;
  std::copy_if(entries.begin(), entries.end(), std::back_inserter(dying),
               [](const auto& entry) { return entry->removed; });
  std::erase_if(entries, [](const auto& entry) { return entry->removed; });
  for (auto& list : slots) std::erase_if(list, [](const auto& slot) { return slot.entry->removed; });
}

void RuntimeState::check_place(bool may_be_twice, const RuntimeEntry& added) const {
  const auto contains = [](const auto& list, std::type_index type) {
    return std::find(list.begin(), list.end(), type) != list.end();
  };
  for (const auto& present : entries) {
    if (present->removed) continue;
    if (present->type == added.type && !may_be_twice)
      throw ArgumentError(
          fmt::format("{} is already among the run-time callbacks: pop it first, or give the type "
                      "`static constexpr bool allows_duplicates = true`",
                      added.name));
    if ((added.runs_last || !present->runs_last) &&
        (contains(present->runs_after, added.type) || contains(added.runs_before, present->type)))
      throw ArgumentError(
          fmt::format("{} must run before {}, which was added earlier", added.name, present->name));
  }
}

void RuntimeState::throw_not_there(std::string_view what) const {
  std::vector<std::string_view> names;
  for (const auto& entry : entries)
    if (!entry->removed) names.push_back(entry->name);
  throw ArgumentError(fmt::format("{} is not among the run-time callbacks of this trainer: [{}]", what,
                                  fmt::join(names, ", ")));
}

void throw_sliced(std::string_view base) {
  throw ArgumentError(
      fmt::format("{} is only a base of the given callback: pass the callback as its actual class", base));
}

void throw_written_as_const(std::string_view callback, std::string_view event) {
  throw ArgumentError(fmt::format("{} writes {}, which was raised as const", callback, event));
}

void throw_written_too_late(std::string_view callback, std::string_view event, std::string_view reader) {
  throw ArgumentError(fmt::format("{} writes {} and would run after {}, which reads it: add it earlier",
                                  callback, event, reader));
}

}  // namespace etude::inline v0::detail
