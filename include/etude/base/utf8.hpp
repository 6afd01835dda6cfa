#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "etude/base/linkage.hpp"

namespace etude {

/// Whether all of `text` is UTF-8 (RFC 3629), as JSON wants it.
bool is_utf8(std::string_view text);

/// `text` with U+FFFD in the place of each byte that isn't UTF-8.
std::string mended_utf8(std::string_view text);

/// `text` in quotes, for a message: control characters and bytes that aren't UTF-8 stand as \xHH.
std::string quoted_utf8(std::string_view text);

/// Mends every text and every key of `json`; returns the first that had to be, in quotes.
std::optional<std::string> mend_utf8(nlohmann::json& json);

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/base/impl/utf8.ipp"
#endif
