#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace etude::inline v0::detail {

/// Bytes as Base64 (RFC 4648, 4), with padding.
std::string base64(std::string_view bytes);

/// Decodes Base64, with or without padding; unset for any other text.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace etude::inline v0::detail
