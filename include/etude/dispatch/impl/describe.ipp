#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <string_view>
#include <vector>

#include "etude/base/linkage.hpp"
#include "etude/dispatch/describe.hpp"

namespace etude::inline v0::detail {

ETUDE_INLINE void describe_event(std::string_view event, const std::vector<std::string>& names,
                                 std::string& text) {
  if (!names.empty()) text += fmt::format("{:<20} {}\n", event, fmt::join(names, ", "));
}

}  // namespace etude::inline v0::detail
