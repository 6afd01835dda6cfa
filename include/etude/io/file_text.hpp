#pragma once

#include <string>
#include <string_view>

#include "etude/io/entry_name.hpp"

/// Helpers for printing text from a file, which may contain anything.
namespace etude::inline v0::detail {

inline std::string in_quotes(std::string_view text) { return "'" + printable(text) + "'"; }

}  // namespace etude::inline v0::detail
