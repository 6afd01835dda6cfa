#pragma once

#include <string>
#include <string_view>

namespace etude::inline v0::detail {

/// Bytes as Base64 (RFC 4648, 4), with padding.
std::string base64(std::string_view bytes);

}  // namespace etude::inline v0::detail
