#pragma once

#include <string>
#include <string_view>

namespace etude::inline v0::detail {

/// `text` with the ASCII letters A to Z in lower case, whatever the locale.
std::string lower_case(std::string_view text);

}  // namespace etude::inline v0::detail
