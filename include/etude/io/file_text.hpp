#pragma once

#include <string>
#include <string_view>

#include "etude/io/entry_name.hpp"

/// Text that comes out of a file, and may be anything.
namespace etude::detail {

/// For a message.
inline std::string in_quotes(std::string_view text) { return "'" + printable(text) + "'"; }

}  // namespace etude::detail
