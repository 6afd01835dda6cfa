#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "etude/base/linkage.hpp"
#include "etude/dispatch/describe.hpp"

namespace etude::inline v0 {

ETUDE_INLINE std::string describe(const std::vector<EventHandlers>& handled) {
  std::string text;
  for (const auto& each : handled)
    text += fmt::format("{:<20} {}\n", each.event, fmt::join(each.callbacks, ", "));
  return text;
}

}  // namespace etude::inline v0
