#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/base/linkage.hpp"
#include "etude/reflect/json.hpp"
#include "etude/reflect/key_values.hpp"
#include "etude/reflect/words.hpp"

namespace etude::detail {

ETUDE_INLINE std::optional<bool> read_bool(std::string_view word) {
  for (const auto yes : {"true", "yes", "on", "1"}) {
    if (word == yes) return true;
  }
  for (const auto no : {"false", "no", "off", "0"}) {
    if (word == no) return false;
  }
  return std::nullopt;
}

}  // namespace etude::detail
