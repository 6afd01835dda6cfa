#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "etude/checkpoint/entry_name.hpp"

/// Text that comes out of a file, and may be anything.
namespace etude::detail {

/// For a message.
inline std::string in_quotes(std::string_view text) { return "'" + printable(text) + "'"; }

inline bool is_utf8(std::string_view text) {
  try {
    nlohmann::json(std::string(text)).dump();
    return true;
  } catch (const nlohmann::json::type_error&) {
    return false;
  }
}

}  // namespace etude::detail
