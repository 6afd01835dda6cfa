#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

#include "etude/base/linkage.hpp"
#include "etude/base/lower_case.hpp"
#include "etude/reflect/read_text.hpp"

namespace etude::inline v0::detail {

ETUDE_INLINE std::optional<bool> read_bool(std::string_view text) {
  const auto word = lower_case(text);
  for (const auto* yes : {"true", "yes", "on", "t", "y", "1"})
    if (word == yes) return true;
  for (const auto* no : {"false", "no", "off", "f", "n", "0"})
    if (word == no) return false;
  return std::nullopt;
}

ETUDE_INLINE bool means_unset(std::string_view text) {
  const auto word = lower_case(text);
  return word == "none" || word == "null";
}

ETUDE_INLINE std::optional<std::size_t> read_name(std::string_view text,
                                                  std::span<const std::string_view> names) {
  const auto found = std::ranges::find(names, text);
  if (found == names.end()) return std::nullopt;
  return static_cast<std::size_t>(found - names.begin());
}

}  // namespace etude::inline v0::detail
